//! A pool of persistent threads that a kernel borrows for one parallel region.
//!
//! The pool's unsafe code is in this file: the closure's lifetime is erased while the workers hold it.

mod share;
mod wait;

pub(crate) use share::{Shares, spread};

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::wait::{Started, poll};
use crate::error::KernelError;

/// How long a waiting thread polls before it goes to sleep: longer than the serial stretch between two regions of a
/// forward pass, and short enough not to be felt when the engine idles.
const SPIN: Duration = Duration::from_micros(200);
/// The same where there are more threads than cores: spinning would take the time from whoever has work.
const SPIN_OVERSUBSCRIBED: Duration = Duration::from_micros(2);
/// More threads than any machine of today has cores; guards against a garbled configuration.
const MAX_THREADS: usize = 1024;

/// The closure of a region.
type Body = dyn Fn(usize, usize) + Sync;

/// A fixed set of threads, the caller's included. A region costs no heap allocation and well under a microsecond while
/// the workers still spin from the last one.
///
/// Dropping it joins the workers.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a region: two callers take turns.
    gate: Mutex<()>,
    spin: Duration,
}

#[derive(Debug)]
struct Shared {
    /// The region: see [`State`].
    state: AtomicU64,
    job: Slot,
    /// Workers that have left the region.
    left: AtomicU32,
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

/// What `Shared::state` packs: which region it is, whether workers may still enter, and how many have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const OPEN: u64 = 1 << 31;

    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn is_open(self) -> bool {
        self.0 & Self::OPEN != 0
    }

    fn entered(self) -> u32 {
        self.0 as u32 & !(Self::OPEN as u32)
    }

    /// The next region, open and empty.
    fn next(self) -> State {
        State(u64::from(self.epoch().wrapping_add(1)) << 32 | Self::OPEN)
    }
}

/// Where a region's closure lies while the region is open.
struct Slot(UnsafeCell<Option<*const Body>>);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

// SAFETY: the slot is written only by the one caller that holds the gate, while the region is closed and every worker that
// entered has left, and read only by workers that have entered (the compare-exchange that enters acquires what opening the
// region released). What it points to is `Sync` and outlives the region, because a region's function closes it and waits
// for all that entered before it returns or unwinds.
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
        let spin = if count <= cores { SPIN } else { SPIN_OVERSUBSCRIBED };
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: Slot(UnsafeCell::new(None)),
            left: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            caller_waits: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut threads = Threads { shared, workers: Vec::with_capacity(count - 1), gate: Mutex::new(()), spin };
        // A thread's own start allocates, and may come late: nobody is to see that in a kernel call.
        let started = Arc::new(Started::default());
        for index in 1..count {
            let shared = Arc::clone(&threads.shared);
            let started = Arc::clone(&started);
            let worker = std::thread::Builder::new()
                .name(format!("kernel-{index}"))
                .spawn(move || {
                    started.add();
                    drop(started);
                    shared.work(index, count, spin);
                })
                .map_err(|error| refuse(error.to_string()))?;
            threads.workers.push(worker);
        }
        started.until(count - 1);
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
        self.region(body, true);
    }

    /// Calls `body(piece)` once for each piece in `0..total`, on whichever threads come for it, and returns when all are
    /// done. A thread that is slow to wake, because something else has its core, is not waited for.
    ///
    /// Callers on several threads take turns; from inside a region all pieces run on this thread.
    ///
    /// # Panics
    ///
    /// With the payload of the first panic of a body, after all threads have finished; the pool stays usable.
    pub fn pieces(&self, total: usize, body: &(dyn Fn(usize) + Sync)) {
        if total < 2 || self.workers.is_empty() || INSIDE.get() {
            return (0..total).for_each(body);
        }
        let next = AtomicUsize::new(0);
        self.region(
            &|_, _| {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= total {
                        break;
                    }
                    body(piece);
                }
            },
            false,
        );
    }

    /// Opens a region, takes part in it, and closes it: when all workers have entered, or as soon as this thread is done.
    fn region(&self, body: &(dyn Fn(usize, usize) + Sync), everyone: bool) {
        // The gate guards no data: a panic that poisoned it left nothing half done.
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        let erased = std::ptr::from_ref(body);
        // SAFETY: only the lifetime changes. No worker uses the pointer after it has left the region, and this function
        // neither returns nor unwinds before the region is closed and all that entered have left.
        let erased = unsafe { std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync + '_), *const Body>(erased) };
        // SAFETY: the gate is held, the last region is closed and everyone has left it: nobody else accesses the slot.
        unsafe { *shared.job.0.get() = Some(erased) };
        shared.left.store(0, Ordering::Relaxed);
        // Only the holder of the gate opens a region, and nobody enters a closed one: the state cannot move in between.
        let state = State(shared.state.load(Ordering::Relaxed));
        shared.state.store(state.next().0, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(shared.guard());
            shared.wake.notify_all();
        }

        INSIDE.set(true);
        let mine = catch_unwind(AssertUnwindSafe(|| body(0, self.count())));
        INSIDE.set(false);
        let entered = if everyone {
            self.workers.len() as u32
        } else {
            State(shared.state.fetch_and(!State::OPEN, Ordering::SeqCst)).entered()
        };
        shared.wait_for_workers(entered, self.spin);
        if everyone {
            shared.state.fetch_and(!State::OPEN, Ordering::SeqCst);
        }

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
        // A new region, closed from the start, to move those that wait for one.
        let state = State(self.shared.state.load(Ordering::Relaxed)).next();
        self.shared.state.store(state.0 & !State::OPEN, Ordering::SeqCst);
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

    fn work(&self, index: usize, count: usize, spin: Duration) {
        INSIDE.set(true);
        let mut seen = 0;
        loop {
            seen = self.wait_for_region(seen, spin);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if !self.enter(seen) {
                continue;
            }
            // SAFETY: this worker has entered, so the caller has written the slot and will neither touch it nor let the
            // closure die before this worker has counted itself into `left` below.
            let body = unsafe { &*(*self.job.0.get()).expect("a region has a closure") };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(index, count))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
            }
            self.left.fetch_add(1, Ordering::SeqCst);
            if self.caller_waits.load(Ordering::SeqCst) {
                drop(self.guard());
                self.done.notify_one();
            }
        }
    }

    /// Counts this worker into region `epoch`, unless it is closed or over.
    fn enter(&self, epoch: u32) -> bool {
        let mut state = State(self.state.load(Ordering::Acquire));
        while state.epoch() == epoch && state.is_open() {
            let entered = state.0 + 1;
            match self.state.compare_exchange_weak(state.0, entered, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => state = State(now),
            }
        }
        false
    }

    /// Returns the epoch of a region other than `seen`. A worker may miss regions that closed without it, never one that
    /// waits for everyone.
    fn wait_for_region(&self, seen: u32, spin: Duration) -> u32 {
        let epoch = || State(self.state.load(Ordering::Acquire)).epoch();
        if poll(spin, || epoch() != seen) {
            return epoch();
        }
        // Announce the sleep, then look again: the caller opens the region first and looks for sleepers second, so one of
        // the two sees the other (both sequentially consistent).
        let mut guard = self.guard();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = loop {
            let epoch = State(self.state.load(Ordering::SeqCst)).epoch();
            if epoch != seen {
                break epoch;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch
    }

    fn wait_for_workers(&self, entered: u32, spin: Duration) {
        if poll(spin, || self.left.load(Ordering::Acquire) == entered) {
            return;
        }
        let mut guard = self.guard();
        self.caller_waits.store(true, Ordering::SeqCst);
        while self.left.load(Ordering::SeqCst) != entered {
            guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
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
        for count in 1..5 {
            let threads = Threads::new(count).unwrap();
            for total in [0, 1, 2, 3, 1000] {
                let taken: Vec<AtomicUsize> = (0..total).map(|_| AtomicUsize::new(0)).collect();
                threads.pieces(total, &|piece| {
                    taken[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(taken.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn both_kinds_of_region_mix() {
        let threads = Threads::new(4).unwrap();
        let sum = AtomicUsize::new(0);
        for round in 0..2000 {
            if round % 3 == 0 {
                threads.run(&|_, _| {
                    sum.fetch_add(1, Ordering::Relaxed);
                });
            } else {
                threads.pieces(4, &|_| {
                    sum.fetch_add(1, Ordering::Relaxed);
                });
            }
        }
        assert_eq!(sum.into_inner(), 4 * 2000);
    }

    #[test]
    fn a_panic_in_a_piece_reaches_the_caller() {
        let threads = Threads::new(3).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            threads.pieces(100, &|piece| {
                if piece == 57 {
                    resume_unwind(Box::new("piece 57"));
                }
            });
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "piece 57");
        let count = AtomicUsize::new(0);
        threads.pieces(100, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 100);
    }
}
