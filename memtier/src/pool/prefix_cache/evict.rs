//! What may go, in which order, and how it goes.

use super::{
    index::NONE,
    tree::{Run, State, VACANT},
};

impl State {
    /// One more lease on the end of a run.
    pub(super) fn begin(&mut self, mut run: u32) {
        loop {
            let known = &mut self.runs[run as usize];
            known.busy += 1;
            if known.busy > 1 {
                return;
            }
            self.idle -= known.len;
            run = known.parent;
        }
    }

    /// A lookup goes on from `parent` to `child`, which is needed from here on: by what follows, or by the lease that ends it.
    #[inline]
    pub(super) fn pass(&mut self, parent: u32, child: u32) {
        let Run { busy: 0, len, .. } = self.runs[child as usize] else { return };
        self.runs[parent as usize].busy += 1;
        self.idle -= len;
    }

    /// One lease less. A path that nothing needs any more counts as used now.
    pub(super) fn end(&mut self, run: u32) {
        let mut at = run;
        loop {
            let known = &mut self.runs[at as usize];
            known.busy -= 1;
            if known.busy > 0 {
                break;
            }
            self.idle += known.len;
            at = known.parent;
        }
        if self.runs[run as usize].busy == 0 {
            self.uses.used(&mut self.runs, run);
        }
    }

    /// Evicts blocks for as long as `free` wants more: always the one unused for longest among those with nothing behind them. `free`
    /// is given the blocks of a run, which go from the last one on, and how many could go in all; it returns how many of them it takes,
    /// with their referents. It is done when it leaves some.
    pub(super) fn evict(&mut self, mut free: impl FnMut(&[u32], usize) -> usize) {
        while let Some(mut run) = self.uses.oldest() {
            let Run { used: tick, busy, first_child, .. } = self.runs[run as usize];
            if busy > 0 || first_child != NONE {
                self.uses.remove(&mut self.runs, run);
                continue;
            }
            // Up the path that the run stands for.
            loop {
                let known = &self.runs[run as usize];
                self.fetch_around(known);
                self.index.fetch(known.hash);
                let Run { len, parent, .. } = *known;
                let taken = free(self.blocks_of(run), self.idle as usize);
                self.drop_tail(run, taken, true);
                if taken < len as usize {
                    self.uses.put_back(&mut self.runs, run, tick);
                    return;
                }
                self.remove(run);
                let above = &self.runs[parent as usize];
                if above.busy > 0 || above.first_child != NONE || above.used > tick {
                    break;
                }
                run = parent;
            }
        }
    }

    /// Takes the last `count` blocks of an idle run out of the books. Nothing is behind them.
    fn drop_tail(&mut self, run: u32, count: usize, evicted: bool) {
        if count == 0 {
            return;
        }
        let known = &mut self.runs[run as usize];
        known.len -= count as u32;
        known.shut = true;
        let first = (known.start + known.len) as usize;
        if let Some(events) = &mut self.events {
            (first..first + count).rev().for_each(|slot| events.removed(slot as u32, evicted));
        }
        self.blocks[first..][..count].fill(NONE);
        self.slots.give(first, count);
        self.cached -= count as u32;
        self.idle -= count as u32;
        self.evicted += if evicted { count as u64 } else { 0 };
    }

    /// Takes a run without blocks, and with nothing behind it, out of everything.
    fn remove(&mut self, run: u32) {
        let Run { hash, parent, next, previous, .. } = self.runs[run as usize];
        match previous {
            NONE => self.runs[parent as usize].first_child = next,
            previous => self.runs[previous as usize].next = next,
        }
        if next != NONE {
            self.runs[next as usize].previous = previous;
        }
        if hash != 0 {
            self.index.remove(hash, run);
        }
        self.uses.remove(&mut self.runs, run);
        self.runs[run as usize] = VACANT;
        self.vacant.push(run);
    }

    /// Gives up what is behind a root and nothing needs. What requests still hold goes when it is unused for longest.
    pub(super) fn empty(&mut self, root: u32, mut free: impl FnMut(&[u32])) {
        let mut at = root;
        loop {
            while self.runs[at as usize].first_child != NONE {
                at = self.runs[at as usize].first_child;
            }
            // Everything behind `at` was seen. Up, and from sibling to sibling.
            loop {
                if at == root {
                    return;
                }
                let Run { parent, next, busy, first_child, len, .. } = self.runs[at as usize];
                if busy == 0 && first_child == NONE {
                    free(self.blocks_of(at));
                    self.drop_tail(at, len as usize, false);
                    self.remove(at);
                }
                at = parent;
                if next != NONE {
                    at = next;
                    break;
                }
            }
        }
    }
}
