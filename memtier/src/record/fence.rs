//! Fences and the proof they give.

use std::{fmt, sync::Arc};

use super::lane::Lane;
use crate::backend::QueueError;

/// A point in the history of a stream: everything launched in one step. Only an ended step makes one.
///
/// A fence proves nothing until it is [waited](Fence::wait) for.
#[must_use = "a fence proves nothing until it is waited for"]
#[derive(Clone)]
pub struct Fence {
    pub(crate) lane: Arc<Lane>,
    pub(crate) step: u64,
}

impl Fence {
    /// Blocks until everything launched up to the end of the step is done.
    ///
    /// # Errors
    /// [`QueueError`] when the device failed.
    pub fn wait(&self) -> Result<Settled, QueueError> {
        self.lane.queue().wait(self.step)?;
        Ok(Settled { lane: self.lane.clone(), step: self.step })
    }

    /// The proof, if the step is done already. Never blocks.
    pub fn poll(&self) -> Option<Settled> {
        let done = self.lane.queue().settled() >= self.step;
        done.then(|| Settled { lane: self.lane.clone(), step: self.step })
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence(stream {}, step {})", self.lane.id(), self.step)
    }
}

/// Proof that a stream finished everything up to the end of a step. Only a fence that was waited for makes one (row r).
#[derive(Clone)]
pub struct Settled {
    pub(crate) lane: Arc<Lane>,
    pub(crate) step: u64,
}

impl Settled {
    /// Whether this proof covers what `fence` marks: the same stream, not later.
    pub fn covers(&self, fence: &Fence) -> bool {
        Arc::ptr_eq(&self.lane, &fence.lane) && fence.step <= self.step
    }
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settled(stream {}, step {})", self.lane.id(), self.step)
    }
}
