//! Queues: what a stream runs on. Copies in and out, and marks that say how far the device has come.

use std::{
    any::Any,
    ptr, slice,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::record::LaunchError;

/// The device did not do what was queued. Work queued before is in an unknown state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the device failed while {operation}: {reason}; {}", self.remedy())]
pub struct QueueError {
    /// What was being done.
    pub operation: &'static str,
    /// The driver's own words.
    pub reason: String,
    /// Whether the device is lost to this process, with everything on it: a kernel faulted, or the hardware did.
    pub lost: bool,
}

impl QueueError {
    /// What to do about it.
    fn remedy(&self) -> &'static str {
        match self.lost {
            true => {
                "the device is lost to this process, and every later call would only report the same: drop the engine, end the \
                 process, and open the engine in a new one"
            }
            false => "launch again, or end the model",
        }
    }
}

/// A device queue: work on it runs in order.
///
/// # Safety
///
/// The implementer promises that `settled` and a returned `wait` never run ahead of the device: everything queued before
/// `mark(n)` is finished when `settled() >= n`. Blocks are reused, and prefixes published, on that word.
pub unsafe trait Queue: Send + Sync + 'static {
    /// Copies `from` to device address `to`, in queue order. `from` may change as soon as this returns.
    ///
    /// # Errors
    /// [`QueueError`].
    ///
    /// # Safety
    /// `to` is a committed range of this queue's device, as long as `from`, that nothing else uses meanwhile.
    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), QueueError>;

    /// Waits for everything queued before and copies device memory out.
    ///
    /// # Errors
    /// [`QueueError`].
    ///
    /// # Safety
    /// `from` is a committed range of this queue's device, as long as `to`.
    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<(), QueueError>;

    /// Copies device memory to host address `to`, in queue order. It is there when a mark behind this is done. A queue that
    /// cannot do that later does it now, and waits.
    ///
    /// # Errors
    /// [`QueueError`].
    ///
    /// # Safety
    /// `from` is a committed range of this queue's device, and `to` one of host memory, both `bytes` long; nothing else uses
    /// `to` until a mark behind this is done.
    unsafe fn read_later(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let to = ptr::with_exposed_provenance_mut(to as usize);
        // SAFETY: by the caller, for longer than this takes.
        let to = unsafe { slice::from_raw_parts_mut(to, bytes) };
        // SAFETY: by the caller.
        unsafe { self.read(from, to) }
    }

    /// Copies inside the device, in queue order.
    ///
    /// # Errors
    /// [`QueueError`].
    ///
    /// # Safety
    /// Both are committed ranges of this queue's device, `bytes` long and disjoint, and nothing else writes them meanwhile.
    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError>;

    /// Copies host memory at address `from` to device address `to`, in queue order: behind what was queued before, and before what
    /// comes after. `from` may be written by a later [`copy_out`](Queue::copy_out).
    ///
    /// # Errors
    /// [`QueueError`]: also of a queue that does not reach host memory, which is all that a queue need do.
    ///
    /// # Safety
    /// `from` is a committed range of host memory and `to` one of this queue's device, both `bytes` long; until a mark behind this is
    /// done only work of this queue uses them.
    unsafe fn copy_in(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let _ = (from, to, bytes);
        Err(no_reach())
    }

    /// Copies device memory to host memory at address `to`, in queue order: what is queued after finds it there.
    ///
    /// # Errors
    /// As [`copy_in`](Queue::copy_in).
    ///
    /// # Safety
    /// As [`copy_in`](Queue::copy_in), with the two exchanged.
    unsafe fn copy_out(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let _ = (from, to, bytes);
        Err(no_reach())
    }

    /// Copies `from` to host memory at address `to`, when everything queued before is done. Waits for it.
    ///
    /// # Errors
    /// As [`copy_in`](Queue::copy_in).
    ///
    /// # Safety
    /// `to` is a committed range of host memory, as long as `from`, that only work of this queue uses.
    unsafe fn write_beside(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        let _ = (to, from);
        Err(no_reach())
    }

    /// Says that everything queued so far belongs to steps up to number `step` (never falling).
    ///
    /// # Errors
    /// [`QueueError`].
    fn mark(&self, step: u64) -> Result<(), QueueError>;

    /// Blocks until everything up to `mark(step)` is done.
    ///
    /// # Errors
    /// [`QueueError`].
    fn wait(&self, step: u64) -> Result<(), QueueError>;

    /// The highest mark that is known to be done. Asks the device if that is cheap, never blocks.
    fn settled(&self) -> u64;

    /// The backend's own stream object, for its launch wrappers.
    fn native(&self) -> &dyn Any;

    /// Bakes launches into one object that the device replays by itself. `launches` is called once and queues them, while
    /// the device writes down instead of running. `None`: this queue replays by calling them again.
    ///
    /// # Errors
    /// Whatever `launches` returned, or [`LaunchError::Device`]. The queue is as it was, and runs launches again.
    fn bake(
        &self,
        launches: &mut dyn FnMut() -> Result<(), LaunchError>,
    ) -> Result<Option<Box<dyn Baked>>, LaunchError> {
        let _ = launches;
        Ok(None)
    }
}

fn no_reach() -> QueueError {
    let reason = "this backend's queues do not copy to or from host memory of another device".to_owned();
    QueueError { operation: "copying across", reason, lost: false }
}

/// Launches that a queue baked: a CUDA graph. Dropped when no replay is in flight.
///
/// # Safety
///
/// The implementer promises that `launch` does on the queue, in order with its other work, what the launches that were
/// baked would do.
pub unsafe trait Baked: Send + Sync + 'static {
    /// Queues a replay.
    ///
    /// # Errors
    /// [`QueueError`].
    ///
    /// # Safety
    /// `on` is the queue that baked it, and the memory that the launches use is committed and used by nothing else.
    unsafe fn launch(&self, on: &dyn Queue) -> Result<(), QueueError>;
}

/// A queue whose work is done by the caller's thread, as CPU ops are.
pub(super) struct HostQueue {
    /// What is done. `None`: everything, always.
    settled: Option<AtomicU64>,
    /// What was read and is not there yet: the address, and what will be there.
    late: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl HostQueue {
    pub(super) fn synchronous() -> Self {
        HostQueue { settled: None, late: Mutex::default() }
    }

    /// For tests: work counts as done only when it was waited for.
    pub(super) fn finishing_when_waited_for() -> Self {
        HostQueue { settled: Some(AtomicU64::new(0)), late: Mutex::default() }
    }
}

impl HostQueue {
    /// Finishes what was to be read later.
    fn deliver(&self) {
        for (to, read) in self.late.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: whoever queued it promised that the memory is there and unused until a mark behind it is done, and none
            // is before this.
            unsafe {
                ptr::copy_nonoverlapping(read.as_ptr(), ptr::with_exposed_provenance_mut(to as usize), read.len())
            };
        }
    }
}

// SAFETY: every operation is finished when it returns, or by `wait`, so `settled` can never run ahead.
unsafe impl Queue for HostQueue {
    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        // SAFETY: by the caller `to` is committed, as long as `from`, and not used by anything else.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), ptr::with_exposed_provenance_mut(to as usize), from.len()) };
        Ok(())
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<(), QueueError> {
        // SAFETY: by the caller `from` is committed and as long as `to`.
        unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance(from as usize), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn read_later(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let mut read = vec![0; bytes];
        // SAFETY: by the caller `from` is committed and `bytes` long.
        unsafe { self.read(from, &mut read)? };
        self.late.lock().unwrap_or_else(PoisonError::into_inner).push((to, read));
        if self.settled.is_none() {
            self.deliver();
        }
        Ok(())
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        let (from, to): (*const u8, *mut u8) =
            (ptr::with_exposed_provenance(from as usize), ptr::with_exposed_provenance_mut(to as usize));
        // SAFETY: by the caller both are committed, `bytes` long and disjoint.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }

    unsafe fn copy_in(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        // SAFETY: by the caller both are committed and `bytes` long; they are of two devices, so they are disjoint.
        unsafe { self.copy(from, to, bytes) }
    }

    unsafe fn copy_out(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        // SAFETY: as above.
        unsafe { self.copy(from, to, bytes) }
    }

    unsafe fn write_beside(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        // SAFETY: by the caller; nothing is ever under way.
        unsafe { self.write(to, from) }
    }

    fn mark(&self, _step: u64) -> Result<(), QueueError> {
        Ok(())
    }

    fn wait(&self, step: u64) -> Result<(), QueueError> {
        if let Some(settled) = &self.settled {
            self.deliver();
            settled.fetch_max(step, Ordering::AcqRel);
        }
        Ok(())
    }

    fn settled(&self) -> u64 {
        self.settled.as_ref().map_or(u64::MAX, |settled| settled.load(Ordering::Acquire))
    }

    fn native(&self) -> &dyn Any {
        &()
    }
}
