//! The order of use: one record for each time that a request lets go of a path, however long the path is.
//!
//! A list of blocks that is reordered on every use touches three lines a block. But paths are used as a whole, and a block is never
//! older than what follows it, so the last block of a used path stands for all of it. Eviction takes the oldest record and
//! walks up from its block. A record whose block was used again is skipped; records are at most twice the blocks.

use std::collections::VecDeque;

/// When a block was used: the number of the use.
pub(super) type Tick = u64;

pub(super) struct Uses {
    /// Oldest first.
    records: VecDeque<(Tick, u32)>,
    most: usize,
    now: Tick,
}

impl Uses {
    pub(super) fn new(entries: usize) -> Self {
        let most = 2 * entries + 64;
        Uses { records: VecDeque::with_capacity(most), most, now: 0 }
    }

    /// The next use's number.
    pub(super) fn tick(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// Records the newest use. `is_valid` tells which records still stand for their block.
    pub(super) fn push(&mut self, tick: Tick, entry: u32, is_valid: impl Fn(Tick, u32) -> bool) {
        if self.records.len() == self.most {
            // At most one is valid for each block, so this frees half, and is paid for by as many pushes.
            self.records.retain(|(tick, entry)| is_valid(*tick, *entry));
        }
        self.records.push_back((tick, entry));
    }

    pub(super) fn oldest(&mut self) -> Option<(Tick, u32)> {
        self.records.pop_front()
    }

    /// The records after a use, oldest first.
    pub(super) fn after(&self, tick: Tick) -> impl Iterator<Item = (Tick, u32)> {
        let first = self.records.partition_point(|(known, _)| *known <= tick);
        self.records.range(first..).copied()
    }

    /// Puts back what is left of the path that the oldest record stood for.
    pub(super) fn put_back(&mut self, tick: Tick, entry: u32) {
        self.records.push_front((tick, entry));
    }
}
