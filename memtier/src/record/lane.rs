//! The identity and the history of a stream.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use super::LaunchError;
use crate::backend::{Queue, QueueError, Region};

/// A queue, and how far the engine's steps have come on it.
pub(crate) struct Lane {
    id: u32,
    /// The engine whose steps it takes.
    engine: u64,
    queue: Box<dyn Queue>,
    /// The number of the latest step begun on it. Steps are numbered per engine, over all its lanes.
    begun: AtomicU64,
    /// Whether that step may still launch.
    open: AtomicBool,
    /// Operations that run now, on any thread; [`REPLAY`] while a graph is replayed. A replay reaches every buffer, so it runs
    /// alone.
    running: AtomicU32,
    /// Host memory that a copy in flight writes and nobody waits for, with the step of the copy. Goes after the queue.
    parked: Mutex<Vec<(u64, Arc<Region>)>>,
}

/// In [`Lane::running`]: a replay runs.
const REPLAY: u32 = 1 << 31;

/// An operation or a replay that runs on a lane.
pub(crate) struct Running<'l>(&'l Lane, u32);

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.running.fetch_sub(self.1, Ordering::Release);
    }
}

impl Lane {
    pub(crate) fn new(engine: u64, queue: Box<dyn Queue>) -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (begun, open, running) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Lane { id, engine, queue, begun, open, running, parked: Mutex::default() })
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    #[inline]
    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// A step begins. What was launched before belongs to earlier steps, also when one of them was leaked.
    pub(crate) fn begin(&self, step: u64) -> Result<(), QueueError> {
        self.queue.mark(step.saturating_sub(1))?;
        let settled = self.queue.settled();
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).retain(|(step, _)| *step > settled);
        self.begun.fetch_max(step, Ordering::AcqRel);
        self.open.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// A step ends: nothing is launched in it any more.
    pub(crate) fn end(&self, step: u64) -> Result<(), QueueError> {
        self.close();
        self.queue.mark(step)
    }

    /// Refuses launches from here on, and lets those of other threads that are under way come before what follows: a mark must
    /// stand behind them.
    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// Whether launches belong to a step that has not ended.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// An operation runs until the guard drops. Refused inside a replay, and when the step has ended: the mark at its end may
    /// be there already.
    #[inline]
    pub(crate) fn run(&self) -> Result<Running<'_>, LaunchError> {
        // Both in one order with `close`: it sees this operation, or this sees that the step is closed.
        let before = self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self, 1);
        if before & REPLAY != 0 {
            return Err(LaunchError::Nested);
        }
        if !self.open.load(Ordering::SeqCst) {
            return Err(LaunchError::StepEnded);
        }
        Ok(running)
    }

    /// A replay runs until the guard drops. `None` while anything else does.
    pub(crate) fn replay(&self) -> Option<Running<'_>> {
        let alone = self.running.compare_exchange(0, REPLAY, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        alone.then_some(Running(self, REPLAY))
    }

    /// The latest step that may have something in flight here.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether nothing that was launched here up to step `step` is in flight.
    pub(crate) fn settled(&self, step: u64) -> bool {
        self.queue.settled() >= step.min(self.begun())
    }

    /// The last step up to which nothing that was launched here is in flight. True from now on: settling never falls.
    pub(crate) fn settled_up_to(&self) -> u64 {
        let begun = self.begun();
        self.queue.settled().min(begun)
    }

    /// Keeps host memory until a copy of step `step` into it is done.
    pub(crate) fn park(&self, step: u64, region: Arc<Region>) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).push((step, region));
    }

    /// Whether nothing is in flight here, and no step that could launch is open.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_open() && self.settled(u64::MAX)
    }

    /// Waits for everything. A step that was leaked ends here.
    pub(crate) fn drain(&self) -> Result<(), QueueError> {
        let begun = self.begun();
        self.close();
        self.queue.mark(begun)?;
        self.queue.wait(begun)
    }
}
