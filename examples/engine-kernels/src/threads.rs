//! A pool of persistent threads that a kernel borrows for one parallel region.
//!
//! All unsafe code of the pool is in this file: the closure's lifetime is erased while the workers hold it.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::KernelError;

/// Polls before a waiting thread goes to sleep: some tens of microseconds, longer than the serial stretch between two
/// regions of a forward pass and short enough not to be felt when the engine idles.
const SPIN_POLLS: u32 = 20_000;
/// The same where there are more threads than cores: spinning would take the time from whoever has work.
const SPIN_POLLS_OVERSUBSCRIBED: u32 = 50;
/// More threads than any machine of today has cores; guards against a garbled configuration.
const MAX_THREADS: usize = 1024;

/// The closure of a region.
type Body = dyn Fn(usize, usize) + Sync;

/// A fixed set of threads, the caller's included. [`Threads::run`] costs no heap allocation and about a microsecond
/// while the workers still spin from the last region.
///
/// Dropping it joins the workers.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a region: two callers take turns.
    gate: Mutex<()>,
    spin: u32,
}

#[derive(Debug)]
struct Shared {
    /// Counts regions; a worker that sees it move has a job.
    epoch: AtomicU32,
    job: Slot,
    /// Workers still inside the region.
    remaining: AtomicUsize,
    stop: AtomicBool,
    /// Workers that sleep or are about to.
    sleepers: AtomicUsize,
    /// Whether the caller sleeps or is about to.
    caller_waits: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    done: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Where a region's closure lies while `epoch` announces it.
struct Slot(UnsafeCell<Option<*const Body>>);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

// SAFETY: the slot is written only by the one caller that holds the gate, while no worker is inside a region
// (`remaining` is 0, read with acquire), and read only by workers after they saw `epoch` move (release/acquire). What it
// points to is `Sync` and outlives the region, because `run` waits for `remaining` to reach 0 before it returns or
// unwinds.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

thread_local! {
    /// Whether this thread is inside a region: a nested one runs serially, for nobody is free to help.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Threads {
    /// A pool of `count` threads: the caller of [`Threads::run`] and `count - 1` workers.
    ///
    /// # Errors
    ///
    /// [`KernelError::Threads`] where the count is 0 or absurd, or the operating system refuses a thread; workers
    /// already started are joined.
    pub fn new(count: usize) -> Result<Threads, KernelError> {
        let refuse = |reason: String| KernelError::Threads { count, reason };
        if count == 0 || count > MAX_THREADS {
            return Err(refuse(format!("between 1 and {MAX_THREADS} are supported")));
        }
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let spin = if count <= cores { SPIN_POLLS } else { SPIN_POLLS_OVERSUBSCRIBED };
        let shared = Arc::new(Shared {
            epoch: AtomicU32::new(0),
            job: Slot(UnsafeCell::new(None)),
            remaining: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            caller_waits: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut threads = Threads { shared, workers: Vec::with_capacity(count - 1), gate: Mutex::new(()), spin };
        for index in 1..count {
            let shared = Arc::clone(&threads.shared);
            let worker = std::thread::Builder::new()
                .name(format!("kernel-{index}"))
                .spawn(move || shared.work(index, count, spin))
                .map_err(|error| refuse(error.to_string()))?;
            threads.workers.push(worker);
        }
        Ok(threads)
    }

    /// The number of threads, the caller included.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(index, count)` once on every thread, index 0 on this one, and returns when all are done.
    ///
    /// Callers on several threads take turns. From inside a region it degrades to `body(0, 1)` on this thread: divide
    /// the work by the `count` passed in, never by [`Threads::count`].
    ///
    /// # Panics
    ///
    /// With the payload of the first panic of a body, after all threads have finished; the pool stays usable.
    pub fn run(&self, body: &(dyn Fn(usize, usize) + Sync)) {
        if self.workers.is_empty() || INSIDE.get() {
            return body(0, 1);
        }
        // The gate guards no data: a panic that poisoned it left nothing half done.
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        let erased = std::ptr::from_ref(body);
        // SAFETY: only the lifetime changes. No worker uses the pointer after `remaining` reached 0, and this function
        // neither returns nor unwinds before that.
        let erased = unsafe { std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), *const Body>(erased) };
        // SAFETY: the gate is held and no worker is in a region, so nobody else accesses the slot.
        unsafe { *shared.job.0.get() = Some(erased) };
        shared.remaining.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(shared.guard());
            shared.wake.notify_all();
        }

        INSIDE.set(true);
        let mine = catch_unwind(AssertUnwindSafe(|| body(0, self.count())));
        INSIDE.set(false);
        shared.wait_for_workers(self.spin);

        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(gate);
        if let Some(payload) = mine.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        drop(self.shared.guard());
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches every panic of a body, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, index: usize, count: usize, spin: u32) {
        INSIDE.set(true);
        let mut seen = 0;
        loop {
            seen = self.wait_for_job(seen, spin);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: `epoch` moved, so the caller has written the slot and will not touch it, nor let the closure die,
            // before this worker has counted itself out of `remaining` below.
            let body = unsafe { &*(*self.job.0.get()).expect("a region announces its closure first") };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(index, count))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            }
            if self.remaining.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_waits.load(Ordering::SeqCst) {
                drop(self.guard());
                self.done.notify_one();
            }
        }
    }

    /// Returns the epoch that follows `seen`. The region that it announces cannot end without this worker, so a worker
    /// never misses one.
    fn wait_for_job(&self, seen: u32, spin: u32) -> u32 {
        for _ in 0..spin {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        // Announce the sleep, then look again: the caller moves `epoch` first and looks for sleepers second, so one of
        // the two sees the other (both sequentially consistent).
        let mut guard = self.guard();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                break epoch;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch
    }

    fn wait_for_workers(&self, spin: u32) {
        for _ in 0..spin {
            if self.remaining.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.guard();
        self.caller_waits.store(true, Ordering::SeqCst);
        while self.remaining.load(Ordering::SeqCst) != 0 {
            guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }
}

/// Hands out `0..total` to the threads of a region in pieces, so that a thread that was held up gets fewer of them.
/// Who computes a piece never changes its result.
#[derive(Debug)]
pub(crate) struct Pieces {
    next: AtomicUsize,
    total: usize,
}

impl Pieces {
    pub(crate) fn new(total: usize) -> Pieces {
        Pieces { next: AtomicUsize::new(0), total }
    }

    /// The next piece, or `None` when all are taken.
    pub(crate) fn take(&self) -> Option<usize> {
        let piece = self.next.fetch_add(1, Ordering::Relaxed);
        (piece < self.total).then_some(piece)
    }
}

/// Calls `body` with ranges that cover `0..total`, of at most `grain` each: on all threads, or with the whole range on
/// this one where the work is too small to share.
pub(crate) fn spread(
    threads: &Threads,
    total: usize,
    grain: usize,
    worthwhile: bool,
    body: &(dyn Fn(std::ops::Range<usize>) + Sync),
) {
    if !worthwhile || total <= grain || threads.count() == 1 {
        return body(0..total);
    }
    let pieces = Pieces::new(total.div_ceil(grain));
    threads.run(&|_, _| {
        while let Some(piece) = pieces.take() {
            body(piece * grain..((piece + 1) * grain).min(total));
        }
    });
}

/// A mutable slice that several threads of a region write disjoint parts of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for `&'a mut [T]`, and every access goes through `part`, whose caller vouches for disjointness.
unsafe impl<T: Send> Send for Shares<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shares<'_, T> {}

impl<'a, T> Shares<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Shares<'a, T> {
        Shares { start: slice.as_mut_ptr(), len: slice.len(), _borrow: std::marker::PhantomData }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    ///
    /// No two live parts overlap.
    #[allow(clippy::mut_from_ref, reason = "the caller vouches for disjointness")]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part lies inside of its slice");
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise, alive for `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_runs_once() {
        for count in 1..5 {
            let threads = Threads::new(count).unwrap();
            for _ in 0..200 {
                let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                threads.run(&|index, total| {
                    assert_eq!(total, count);
                    hits[index].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn absurd_counts_are_refused() {
        assert!(matches!(Threads::new(0), Err(KernelError::Threads { count: 0, .. })));
        assert!(Threads::new(MAX_THREADS + 1).is_err());
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let threads = Threads::new(3).unwrap();
        for culprit in 0..3 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                threads.run(&|index, _| {
                    if index == culprit {
                        resume_unwind(Box::new(culprit));
                    }
                });
            }));
            assert_eq!(*caught.unwrap_err().downcast::<usize>().unwrap(), culprit);
            let sum = AtomicUsize::new(0);
            threads.run(&|index, _| {
                sum.fetch_add(index, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 3);
        }
    }

    #[test]
    fn callers_on_two_threads_take_turns() {
        let threads = Threads::new(2).unwrap();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        threads.run(&|index, _| {
                            if index == 0 {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                inside.fetch_sub(1, Ordering::SeqCst);
                            }
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn a_nested_region_runs_serially() {
        let threads = Threads::new(3).unwrap();
        let calls = AtomicUsize::new(0);
        threads.run(&|_, _| {
            threads.run(&|index, count| {
                assert_eq!((index, count), (0, 1));
                calls.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(calls.into_inner(), 3);
    }

    #[test]
    fn sleeping_workers_wake() {
        let threads = Threads::new(4).unwrap();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let hits = AtomicUsize::new(0);
            threads.run(&|_, _| {
                hits.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(hits.into_inner(), 4);
        }
    }

    #[test]
    fn pieces_are_handed_out_once() {
        let threads = Threads::new(3).unwrap();
        let taken: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        let pieces = Pieces::new(taken.len());
        threads.run(&|_, _| {
            while let Some(piece) = pieces.take() {
                taken[piece].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(taken.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}
