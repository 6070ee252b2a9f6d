//! What may go, in which order, and how it goes.

use super::{
    index::NONE,
    tree::{Entry, State, VACANT},
};

impl State {
    /// One more lease on an entry.
    pub(super) fn begin(&mut self, mut entry: u32) {
        loop {
            let known = &mut self.entries[entry as usize];
            known.busy += 1;
            if known.busy > 1 {
                return;
            }
            entry = known.parent;
            self.idle -= 1;
        }
    }

    /// A lookup goes on from `parent` to `child`, which is needed from here on: by what follows, or by the lease that ends it.
    #[inline]
    pub(super) fn pass(&mut self, parent: u32, child: u32) {
        if self.entries[child as usize].busy == 0 {
            self.entries[parent as usize].busy += 1;
            self.idle -= 1;
        }
    }

    /// One lease less. A path that nothing needs any more counts as used now.
    pub(super) fn end(&mut self, entry: u32) {
        let mut at = entry;
        loop {
            let known = &mut self.entries[at as usize];
            known.busy -= 1;
            if known.busy > 0 {
                break;
            }
            let parent = known.parent;
            self.idle += 1;
            self.prefetch_beyond(at, parent);
            at = parent;
        }
        if self.entries[entry as usize].busy == 0 {
            let tick = self.uses.tick();
            self.entries[entry as usize].used = tick;
            let entries = &self.entries;
            self.uses.push(tick, entry, |tick, entry| entries[entry as usize].used == tick);
        }
    }

    /// Evicts blocks for as long as `free` asks for more: always the one unused for longest among those with nothing behind them. Their
    /// referents are the caller's. `free` is told how many could go after each.
    pub(super) fn evict(&mut self, mut free: impl FnMut(u32, usize) -> bool) {
        while let Some((tick, mut entry)) = self.uses.oldest() {
            let known = &self.entries[entry as usize];
            // Used again since; or needed; or with something behind it, whose eviction comes by here later.
            if known.used != tick || known.busy > 0 || known.first_child != NONE {
                continue;
            }
            // Up the path that the record stands for.
            loop {
                let Entry { parent, block, .. } = self.entries[entry as usize];
                self.prefetch_beyond(entry, parent);
                self.remove(entry, true);
                self.evicted += 1;
                let more = free(block, self.idle as usize);
                let known = &mut self.entries[parent as usize];
                let is_next = known.busy == 0 && known.first_child == NONE && known.used <= tick;
                if !more {
                    if is_next {
                        known.used = tick;
                        self.uses.put_back(tick, parent);
                    }
                    return;
                }
                if !is_next {
                    break;
                }
                entry = parent;
            }
        }
    }

    /// Evicts one block, whose referent is the caller's.
    pub(super) fn evict_one(&mut self) -> Option<u32> {
        let mut evicted = None;
        self.evict(|block, _| {
            evicted = Some(block);
            false
        });
        evicted
    }

    /// Takes an idle entry with nothing behind it out of everything.
    #[inline(always)]
    fn remove(&mut self, entry: u32, evicted: bool) {
        if let Some(events) = &mut self.events {
            events.removed(entry, evicted);
        }
        let Entry { hash, parent, next, previous, .. } = self.entries[entry as usize];
        match previous {
            NONE => self.entries[parent as usize].first_child = next,
            previous => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if hash != 0 {
            self.index.remove(hash, entry);
        }
        self.entries[entry as usize] = VACANT;
        self.vacant.push(entry);
        self.cached -= 1;
        self.idle -= 1;
    }

    /// Gives up what is behind a root and nothing needs. What requests still hold goes when it is unused for longest.
    pub(super) fn empty(&mut self, root: u32, mut free: impl FnMut(u32)) {
        let mut at = root;
        loop {
            while self.entries[at as usize].first_child != NONE {
                at = self.entries[at as usize].first_child;
            }
            // Everything behind `at` was seen. Up, and from sibling to sibling.
            loop {
                if at == root {
                    return;
                }
                let Entry { parent, next, block, busy, first_child, .. } = self.entries[at as usize];
                if busy == 0 && first_child == NONE {
                    free(block);
                    self.remove(at, false);
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
