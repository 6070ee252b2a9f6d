//! Leases: what keeps a path of the cache.

use std::sync::Arc;

use super::tree::Tree;

/// Keeps an entry and everything before it. Counted by hand: [`Tree::end`] gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) entry: u32,
    /// Blocks from the root on.
    pub(super) depth: u32,
    /// The entry of the root: not another's for as long as anything is kept behind it.
    pub(super) root: u32,
}

/// A lease on a path, held by a request. Dropping it ends it, on any thread.
pub(crate) struct Lease {
    pub(crate) tree: Arc<Tree>,
    pub(super) at: At,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tree.lock().end(self.at.entry);
    }
}

impl Lease {
    /// How many blocks it keeps.
    pub(crate) fn blocks(&self) -> usize {
        self.at.depth as usize
    }

    /// Another one on the same path.
    pub(crate) fn again(&self) -> Lease {
        self.tree.lock().begin(self.at.entry);
        Lease { tree: self.tree.clone(), at: self.at }
    }

    /// The same lease on the first `depth` blocks of its path only.
    pub(crate) fn shorten(&mut self, depth: usize) {
        let mut state = self.tree.lock();
        let mut at = self.at;
        while at.depth as usize > depth {
            at = At { entry: state.entries[at.entry as usize].parent, depth: at.depth - 1, ..at };
        }
        state.begin(at.entry);
        state.end(self.at.entry);
        drop(state);
        self.at = at;
    }
}
