//! A stream as a [`Queue`]: copies through page-locked staging, and events as marks.

use std::{
    any::Any,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cudarc::driver::sys::{self, CUresult};
use memtier::{Baked, LaunchError, Queue, QueueError};

use crate::{
    driver::{Context, check},
    error::DriverError,
    graph,
    staging::Staging,
};

/// How many marks can be in flight each for itself; further ones are folded into the latest.
const MARKS: usize = 64;

/// The stream behind a queue: what [`Queue::native`] gives, for launches.
pub struct CudaStream {
    context: Arc<Context>,
    raw: sys::CUstream,
    /// Whether something was queued since the last mark.
    dirty: AtomicBool,
}

// SAFETY: the driver's streams are used from any thread; the handle is only passed to it.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(crate) fn open(context: &Arc<Context>) -> Result<Self, DriverError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        context.acquire("cuStreamCreate", || {
            // SAFETY: writes a handle, which is destroyed in `drop`.
            unsafe { sys::cuStreamCreate(&mut raw, flags) }
        })?;
        Ok(CudaStream { context: context.clone(), raw, dirty: AtomicBool::new(false) })
    }

    /// Queues something: `work` gets the driver's handle, with its context made current. What is queued through a handle
    /// that was kept from before is not seen by the next mark.
    ///
    /// # Errors
    /// [`DriverError`], or what `work` returns.
    #[inline]
    pub fn enqueue<R>(&self, work: impl FnOnce(sys::CUstream) -> Result<R, DriverError>) -> Result<R, DriverError> {
        self.context.bind()?;
        let result = work(self.raw);
        // Afterwards: a mark that another thread makes meanwhile either stands behind the work, or leaves this for the next.
        self.dirty.store(true, Ordering::Release);
        result
    }

    /// As [`enqueue`](Self::enqueue), for something that has no effect when it fails: the context is only looked at then.
    #[inline]
    pub(crate) fn enqueue_or_bind(
        &self,
        mut work: impl FnMut(sys::CUstream) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut result = work(self.raw);
        if result.is_err() && self.context.changed()? {
            result = work(self.raw);
        }
        self.dirty.store(true, Ordering::Release);
        result
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits for everything that was queued.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.synchronize().is_ok() {
            // SAFETY: created in `open`, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// An event without timing.
struct Mark(sys::CUevent);

// SAFETY: the driver's events are used from any thread; the handle is only passed to it.
unsafe impl Send for Mark {}

impl Mark {
    fn create(context: &Context) -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        context.acquire("cuEventCreate", || {
            // SAFETY: writes a handle; the callers made the context current.
            unsafe { sys::cuEventCreate(&mut raw, flags) }
        })?;
        Ok(Mark(raw))
    }

    fn record(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: both are live handles of one context, which the callers made current.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.0, stream) })
    }

    /// Whether everything before the last record is done.
    fn done(&self) -> Result<bool, DriverError> {
        // SAFETY: a live event.
        match unsafe { sys::cuEventQuery(self.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Marks that may be in flight, the oldest first.
struct Marks {
    pending: std::collections::VecDeque<(u64, Mark)>,
    spare: Vec<Mark>,
    /// The highest mark of all.
    last: u64,
}

/// A stream with its marks and its staging.
pub(crate) struct CudaQueue {
    // Dropped in this order: the stream waits for its work, then events and staging go.
    stream: CudaStream,
    marks: Mutex<Marks>,
    staging: Mutex<Staging>,
    settled: AtomicU64,
}

impl CudaQueue {
    pub(crate) fn open(context: &Arc<Context>, staging: u64) -> Result<Self, DriverError> {
        let stream = CudaStream::open(context)?;
        let spare = (0..MARKS).map(|_| Mark::create(context)).collect::<Result<Vec<_>, _>>()?;
        let pending = std::collections::VecDeque::with_capacity(MARKS);
        let staging = Mutex::new(Staging::open(context, staging)?);
        let marks = Mutex::new(Marks { pending, spare, last: 0 });
        Ok(CudaQueue { stream, marks, staging, settled: AtomicU64::new(0) })
    }

    /// Moves marks that are done from pending to settled. An error of the device leaves them pending: a failed device never
    /// settles anything.
    fn poll(&self, marks: &mut Marks) -> Result<(), DriverError> {
        while let Some((step, mark)) = marks.pending.front() {
            if !mark.done()? {
                break;
            }
            self.settled.fetch_max(*step, Ordering::AcqRel);
            if let Some((_, mark)) = marks.pending.pop_front() {
                marks.spare.push(mark);
            }
        }
        Ok(())
    }

    fn mark_now(&self, step: u64) -> Result<(), DriverError> {
        self.stream.context.bind()?;
        let mut marks = lock(&self.marks);
        let step = step.max(marks.last);
        if !self.stream.dirty.swap(false, Ordering::AcqRel) {
            // Nothing was queued since the last mark, so what that one stands for is all there is.
            match marks.pending.back_mut() {
                Some((last, _)) => *last = step,
                None => drop(self.settled.fetch_max(step, Ordering::AcqRel)),
            }
            marks.last = step;
            return Ok(());
        }
        let recorded = self.record(&mut marks, step);
        if recorded.is_err() {
            self.stream.dirty.store(true, Ordering::Release);
        }
        recorded
    }

    fn record(&self, marks: &mut Marks, step: u64) -> Result<(), DriverError> {
        if marks.spare.is_empty() {
            self.poll(marks)?;
        }
        match marks.spare.pop() {
            Some(mark) => {
                let recorded = mark.record(self.stream.raw);
                match recorded {
                    Ok(()) => marks.pending.push_back((step, mark)),
                    Err(_) => marks.spare.push(mark),
                }
                recorded?;
            }
            // All are in flight: the latest one moves on and stands for both. It settles later than it could.
            None => {
                if let Some((last, mark)) = marks.pending.back_mut() {
                    mark.record(self.stream.raw)?;
                    *last = step;
                }
            }
        }
        marks.last = step;
        Ok(())
    }

    fn wait_for(&self, step: u64) -> Result<(), DriverError> {
        if self.settled.load(Ordering::Acquire) >= step {
            return Ok(());
        }
        self.stream.context.bind()?;
        let event = {
            let marks = lock(&self.marks);
            let of_step = marks.pending.iter().find(|(marked, _)| *marked >= step);
            of_step.or(marks.pending.back()).map(|(_, mark)| mark.0)
        };
        if let Some(event) = event {
            // SAFETY: events live as long as the queue. Another thread may record this one again meanwhile, for later work
            // of the same stream: then this waits for that, too.
            check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event) })?;
        }
        self.poll(&mut lock(&self.marks))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A driver's error as a queue's.
pub(crate) fn while_doing(operation: &'static str) -> impl Fn(DriverError) -> QueueError {
    move |error| QueueError { operation, reason: error.to_string(), lost: error.is_lost() }
}

// SAFETY: an event is done when everything queued on its stream before it is. `settled` and `wait` go by events that were
// recorded after everything that the mark stands for, or by there having been nothing.
unsafe impl Queue for CudaQueue {
    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        let mut staging = lock(&self.staging);
        // SAFETY: by the caller `to` is committed device memory as long as `from`.
        unsafe { staging.write(&self.stream, to, from) }.map_err(while_doing("copying to it"))
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<(), QueueError> {
        let mut staging = lock(&self.staging);
        // SAFETY: by the caller `from` is committed device memory as long as `to`.
        unsafe { staging.read(&self.stream, from, to) }.map_err(while_doing("copying from it"))
    }

    unsafe fn read_later(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        // SAFETY: by the caller. The driver copies later into page-locked memory, and before it returns into other memory.
        unsafe { self.copy_out(from, to, bytes) }
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let copied = self.stream.enqueue(|stream| {
            // SAFETY: by the caller both are committed, `bytes` long and disjoint.
            check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) })
        });
        copied.map_err(while_doing("copying inside it"))
    }

    unsafe fn copy_in(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let copied = self.stream.enqueue(|stream| {
            self.stream.context.locked.pieces(from, bytes as u64, |at, bytes| {
                let from = ptr::with_exposed_provenance((from + at) as usize);
                // SAFETY: by the caller both are committed and `bytes` long, and only this stream uses them. Where the host memory is
                // not page-locked, the driver takes it into memory of its own, in the order of the stream.
                let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to + at, from, bytes as usize, stream) };
                check("cuMemcpyHtoDAsync", result)
            })
        });
        copied.map_err(while_doing("copying from the host's memory"))
    }

    unsafe fn copy_out(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let copied = self.stream.enqueue(|stream| {
            self.stream.context.locked.pieces(to, bytes as u64, |at, bytes| {
                let to = ptr::with_exposed_provenance_mut((to + at) as usize);
                // SAFETY: as above.
                let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from + at, bytes as usize, stream) };
                check("cuMemcpyDtoHAsync", result)
            })
        });
        copied.map_err(while_doing("copying to the host's memory"))
    }

    unsafe fn write_beside(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        self.stream.synchronize().map_err(while_doing("waiting for copies to the host's memory"))?;
        // SAFETY: by the caller `to` is host memory, committed, as long as `from`; only this stream used it, and that is done.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), ptr::with_exposed_provenance_mut(to as usize), from.len()) };
        Ok(())
    }

    fn mark(&self, step: u64) -> Result<(), QueueError> {
        self.mark_now(step).map_err(while_doing("marking a step"))
    }

    fn wait(&self, step: u64) -> Result<(), QueueError> {
        self.wait_for(step).map_err(while_doing("waiting for a step"))
    }

    fn settled(&self) -> u64 {
        // A holder of the lock is recording or polling and will not be long; whoever asks now gets the last answer.
        if let Ok(mut marks) = self.marks.try_lock()
            && !marks.pending.is_empty()
            && self.stream.context.bind().is_ok()
        {
            let _ = self.poll(&mut marks);
        }
        self.settled.load(Ordering::Acquire)
    }

    fn native(&self) -> &dyn Any {
        &self.stream
    }

    fn bake(
        &self,
        launches: &mut dyn FnMut() -> Result<(), LaunchError>,
    ) -> Result<Option<Box<dyn Baked>>, LaunchError> {
        graph::bake(&self.stream, launches).map(Some)
    }
}
