//! Streams: each does its work on a thread of its own, in order, beside the others and beside the caller.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::c_uint,
    sync::Arc,
};

use cudarc::driver::sys::{CUresult as R, CUstream};

use super::{
    calls::{Driver, Inside, in_context, pointer, put},
    error::{Failure, Outcome, ensure},
    work::{Mark, Work},
};

/// The default stream, by its handle inside.
pub(super) const DEFAULT: u64 = 1;
/// The driver's other name for the default stream, and the one of a thread's own.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// One thing to do, what it comes behind on other streams, and what says that it is done.
struct Item {
    work: Work,
    after: Vec<Arc<Mark>>,
    mark: Arc<Mark>,
}

#[derive(Default)]
struct Stream {
    /// Whether it keeps the default stream's order.
    blocking: bool,
    queue: VecDeque<Item>,
    /// What was queued last.
    tail: Option<Arc<Mark>>,
    /// It was destroyed, and ends when it is done.
    closing: bool,
}

impl Stream {
    fn tail(&self) -> Option<Arc<Mark>> {
        self.tail.clone().filter(|mark| !mark.is_done())
    }
}

/// Every stream.
#[derive(Default)]
pub(super) struct Streams(BTreeMap<u64, Stream>);

impl Streams {
    /// Whether it keeps the default stream's order.
    pub(super) fn is_blocking(&self, stream: u64) -> bool {
        self.0.get(&stream).is_some_and(|stream| stream.blocking)
    }

    /// What was queued last on a stream, unless that is done.
    pub(super) fn tail(&self, stream: u64) -> Option<Arc<Mark>> {
        self.0.get(&stream).and_then(Stream::tail)
    }
}

impl Inside {
    fn open_stream(&mut self, handle: u64, blocking: bool) -> Outcome {
        let driver = self.driver;
        let thread = std::thread::Builder::new().name("emulated stream".into());
        thread.spawn(move || serve(driver, handle)).map_err(|_| R::CUDA_ERROR_OPERATING_SYSTEM)?;
        self.streams.0.insert(handle, Stream { blocking, ..Stream::default() });
        Ok(())
    }

    /// The stream behind a handle.
    pub(super) fn stream(&mut self, handle: CUstream) -> Outcome<u64> {
        let handle = handle.addr() as u64;
        ensure(handle != PER_THREAD, R::CUDA_ERROR_NOT_SUPPORTED)?;
        if handle == 0 || handle == LEGACY {
            if !self.streams.0.contains_key(&DEFAULT) {
                self.open_stream(DEFAULT, true)?;
            }
            return Ok(DEFAULT);
        }
        let found = self.streams.0.get(&handle).filter(|stream| !stream.closing);
        found.map(|_| handle).ok_or(R::CUDA_ERROR_INVALID_HANDLE.into())
    }

    /// Puts work at the end of a stream that is not captured, behind `after`, too.
    pub(super) fn push(&mut self, handle: u64, work: Work, mut after: Vec<Arc<Mark>>) -> Outcome<Arc<Mark>> {
        let others = self.streams.0.iter().filter(|(other, stream)| match handle {
            DEFAULT => **other != DEFAULT && stream.blocking,
            _ => **other == DEFAULT && self.streams.is_blocking(handle),
        });
        after.extend(others.filter_map(|(_, stream)| stream.tail()));
        let stream = self.streams.0.get_mut(&handle).ok_or(R::CUDA_ERROR_INVALID_HANDLE)?;
        let mark = Arc::new(Mark::default());
        stream.tail = Some(mark.clone());
        stream.queue.push_back(Item { work, after, mark: mark.clone() });
        self.wake();
        Ok(mark)
    }

    /// Waits for one piece of work.
    pub(super) fn wait_for(&mut self, mark: &Mark) {
        while !mark.is_done() {
            self.wait();
        }
    }

    /// Waits for everything that is queued now.
    pub(super) fn drain_all(&mut self) {
        let tails: Vec<_> = self.streams.0.values().filter_map(Stream::tail).collect();
        tails.iter().for_each(|mark| self.wait_for(mark));
    }

    /// Ends every stream.
    pub(super) fn close_streams(&mut self) {
        self.streams.0.values_mut().for_each(|stream| stream.closing = true);
        self.wake();
        while !self.streams.0.is_empty() {
            self.wait();
        }
    }
}

/// A stream's thread.
fn serve(driver: &'static Driver, handle: u64) {
    let mut inside = driver.lock();
    loop {
        let Some(stream) = inside.streams.0.get_mut(&handle) else { return };
        let Some(item) = stream.queue.pop_front() else {
            if stream.closing {
                inside.streams.0.remove(&handle);
                return inside.wake();
            }
            inside.wait();
            continue;
        };
        item.after.iter().for_each(|mark| inside.wait_for(mark));
        while inside.held && inside.lost.is_none() {
            inside.wait();
        }
        // What is behind a failure is not done; but it is over.
        if inside.lost.is_none() && !matches!(item.work, Work::Nothing) {
            inside.running += 1;
            drop(inside);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| item.work.run(driver)));
            inside = driver.lock();
            inside.running -= 1;
            if let Err(failure) = result.unwrap_or(Err(Failure(R::CUDA_ERROR_UNKNOWN as u32))) {
                inside.lost.get_or_insert(failure);
            }
            inside.sweep();
        }
        item.mark.settle();
        inside.wake();
    }
}

/// # Safety
/// `stream` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> u32 {
    in_context("cuStreamCreate", |inside| {
        ensure(!stream.is_null() && flags <= 1, R::CUDA_ERROR_INVALID_VALUE)?;
        let handle = inside.handle();
        inside.open_stream(handle, flags == 0)?;
        // SAFETY: by the caller.
        unsafe { put(stream, pointer(handle)) }
    })
}

/// # Safety
/// The stream is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> u32 {
    in_context("cuStreamDestroy", |inside| {
        let handle = inside.stream(stream)?;
        ensure(handle != DEFAULT, R::CUDA_ERROR_INVALID_HANDLE)?;
        inside.captures.forget(handle);
        if let Some(stream) = inside.streams.0.get_mut(&handle) {
            stream.closing = true;
        }
        inside.wake();
        Ok(())
    })
}

/// # Safety
/// None is needed: what is no stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> u32 {
    in_context("cuStreamSynchronize", |inside| {
        let handle = inside.stream(stream)?;
        inside.unless_captured(handle)?;
        inside.unless_capturing()?;
        if let Some(mark) = inside.streams.tail(handle) {
            inside.wait_for(&mark);
        }
        inside.alive()
    })
}

/// # Safety
/// None is needed: what is no stream is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: CUstream) -> u32 {
    in_context("cuStreamQuery", |inside| {
        let handle = inside.stream(stream)?;
        inside.unless_captured(handle)?;
        inside.unless_capturing()?;
        ensure(inside.streams.tail(handle).is_none(), R::CUDA_ERROR_NOT_READY)
    })
}
