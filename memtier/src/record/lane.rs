//! The identity and the history of a stream.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::backend::{Queue, QueueError};

/// A queue, and how far the engine's steps have come on it.
pub(crate) struct Lane {
    id: u32,
    /// The engine whose steps it takes.
    engine: u64,
    queue: Box<dyn Queue>,
    /// The number of the latest step begun on it. Steps are numbered per engine, over all its lanes.
    begun: AtomicU64,
}

impl Lane {
    pub(crate) fn new(engine: u64, queue: Box<dyn Queue>) -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Lane { id, engine, queue, begun: AtomicU64::new(0) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// A step begins. What was launched before belongs to earlier steps, also when one of them was leaked.
    pub(crate) fn begin(&self, step: u64) -> Result<(), QueueError> {
        self.queue.mark(step.saturating_sub(1))?;
        self.begun.fetch_max(step, Ordering::AcqRel);
        Ok(())
    }

    /// The latest step that may have something in flight here.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether nothing that was launched here up to step `step` is in flight.
    pub(crate) fn settled(&self, step: u64) -> bool {
        self.queue.settled() >= step.min(self.begun())
    }

    /// Waits for everything. No step may be open.
    pub(crate) fn drain(&self) -> Result<(), QueueError> {
        let begun = self.begun();
        self.queue.mark(begun)?;
        self.queue.wait(begun)
    }
}
