//! Leases: what keeps a path of the cache.

use std::sync::Arc;

use super::tree::Tree;

/// Keeps a run and everything before it. Counted by hand: [`State::end`](super::tree::State::end) gives it back.
///
/// A lease is on the end of its run: where one ends elsewhere, the run is cut there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) run: u32,
    /// Blocks from the root on.
    pub(super) depth: u32,
    /// The run of the root: not another's for as long as anything is kept behind it.
    pub(super) root: u32,
}

/// A lease on a path, held by a request. Dropping it ends it, on any thread.
pub(crate) struct Lease {
    pub(crate) tree: Arc<Tree>,
    pub(super) at: At,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tree.lock().end(self.at.run);
    }
}

impl Lease {
    /// How many blocks it keeps.
    pub(crate) fn blocks(&self) -> usize {
        self.at.depth as usize
    }

    /// Another one on the same path.
    pub(crate) fn again(&self) -> Lease {
        self.tree.lock().begin(self.at.run);
        Lease { tree: self.tree.clone(), at: self.at }
    }

    /// The same lease on the first `depth` blocks of its path only.
    pub(crate) fn shorten(&mut self, depth: usize) {
        if depth < self.at.depth as usize {
            self.at = self.tree.lock().shorten(self.at, depth);
        }
    }
}
