//! The order of use: a list through the runs at whose end a lease ended, oldest first.
//!
//! A path is used as a whole, and a block is never older than what follows it, so the run at the end of a used path stands for all of
//! it: a use moves one run, however long the path is. Eviction takes the oldest run and walks up from it. A run that is needed
//! when its turn comes, or has something behind it, leaves the list: whoever ends its use lists it again, or what is behind it leads there.

use super::{index::NONE, tree::Run};

/// When a path was used: the number of the use.
pub(super) type Tick = u64;

pub(super) struct Uses {
    oldest: u32,
    newest: u32,
    now: Tick,
}

impl Uses {
    pub(super) const fn new() -> Self {
        Uses { oldest: NONE, newest: NONE, now: 0 }
    }

    /// The path that ends with `run` was used now.
    pub(super) fn used(&mut self, runs: &mut [Run], run: u32) {
        self.remove(runs, run);
        self.now += 1;
        let known = &mut runs[run as usize];
        (known.used, known.listed, known.older, known.newer) = (self.now, true, self.newest, NONE);
        match std::mem::replace(&mut self.newest, run) {
            NONE => self.oldest = run,
            newest => runs[newest as usize].newer = run,
        }
    }

    /// Puts back what is left of the oldest path, which was used at `tick`.
    pub(super) fn put_back(&mut self, runs: &mut [Run], run: u32, tick: Tick) {
        self.remove(runs, run);
        let known = &mut runs[run as usize];
        (known.used, known.listed, known.older, known.newer) = (tick, true, NONE, self.oldest);
        match std::mem::replace(&mut self.oldest, run) {
            NONE => self.newest = run,
            oldest => runs[oldest as usize].older = run,
        }
    }

    /// Takes a run out of the list, if it is there.
    pub(super) fn remove(&mut self, runs: &mut [Run], run: u32) {
        let Run { listed: true, older, newer, .. } = runs[run as usize] else { return };
        match older {
            NONE => self.oldest = newer,
            older => runs[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => runs[newer as usize].older = older,
        }
        runs[run as usize].listed = false;
    }

    /// The run unused for longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }
}
