//! Room: what is collected, what the cache gives up for requests, and what goes back to the system.

use std::sync::Arc;

use super::{AcquireBlocksError, Core, FREE, GROUP, State};
use crate::{
    pool::{prefix_cache::Tree, sync::Ordering},
    units::Blocks,
};

/// How many blocks are taken from a cache for a request that needs fewer, so that the next ones find some free. Where that is little
/// of what the cache can give.
const BATCH: usize = 64;
/// Of what the cache can give, the part that goes at most for a request that needs fewer.
const PART: usize = 16;

/// What became of a block that the cache gave up.
enum Taken {
    Free,
    /// Free when the steps that could reach it are done.
    InFlight,
    /// A fork, or a page table's row, has it, too.
    Held,
}

impl Core {
    /// Makes `cache` the pool's cache, unless the present model has one.
    pub(crate) fn set_cache(&self, cache: &Arc<Tree>) -> bool {
        let mut state = self.state.lock();
        // One of a model that has ended holds nothing (the pool was drained), whoever has a handle of it.
        let is_free = state.cache.upgrade().is_none_or(|known| known.epoch != state.epoch);
        if is_free {
            state.cache = Arc::downgrade(cache);
        }
        is_free
    }

    /// Blocks that only the pool's cache needs.
    pub(crate) fn reclaimable(&self) -> Blocks {
        let cache = self.state.lock().cache.upgrade();
        Blocks::new(cache.map_or(0, |cache| u64::from(cache.idle())))
    }

    /// Notes that the block may become free.
    #[inline]
    pub(super) fn note(&self, id: u32) {
        let group = id as usize / GROUP;
        // Mostly it is there already: a block that goes back and forth leaves one note.
        if !self.changed[group].load(Ordering::Relaxed) {
            self.note_group(group);
        }
    }

    #[cold]
    fn note_group(&self, group: usize) {
        self.changed[group].store(true, Ordering::Relaxed);
        self.changed_groups[group / GROUP].store(true, Ordering::Release);
        self.changed_any.store(true, Ordering::Release);
    }

    /// Moves to the free list what nobody refers to and nothing in flight can reach: in the groups where something changed, or
    /// in all of them. A note may come before what it tells of, so only a look at all blocks finds them all. Returns how many it saw
    /// that are in flight still.
    pub(super) fn collect(&self, state: &mut State, all: bool) -> usize {
        if !all && !self.changed_any.load(Ordering::Relaxed) {
            return 0;
        }
        // Whoever notes something from here on is seen now or next time.
        self.changed_any.swap(false, Ordering::AcqRel);
        let settled = state.settled();
        let mut in_flight = 0;
        let groups = (self.committed() as usize).div_ceil(GROUP);
        // Low blocks end up on top.
        for many in (0..groups.div_ceil(GROUP)).rev() {
            if !self.changed_groups[many].load(Ordering::Acquire) && !all {
                continue;
            }
            self.changed_groups[many].store(false, Ordering::Relaxed);
            for group in (many * GROUP..groups.min((many + 1) * GROUP)).rev() {
                if self.changed[group].load(Ordering::Relaxed) || all {
                    in_flight += self.collect_group(state, group, settled);
                }
            }
        }
        in_flight
    }

    fn collect_group(&self, state: &mut State, group: usize, settled: u64) -> usize {
        self.changed[group].store(false, Ordering::Relaxed);
        let (first, committed) = (group * GROUP, self.committed() as usize);
        // There from the start; said here, so that a push is a store.
        state.free.reserve(GROUP);
        let mut in_flight = 0;
        for (id, block) in self.blocks[first..committed.min(first + GROUP)].iter().enumerate().rev() {
            if !block.is_quiet() {
                continue;
            }
            let id = (first + id) as u32;
            if state.is_out_of_reach(block.touched.load(Ordering::Acquire), settled) {
                block.refs.store(FREE, Ordering::Relaxed);
                state.free.push(id);
            } else {
                // In flight still: looked at again.
                self.note(id);
                in_flight += 1;
            }
        }
        in_flight
    }

    /// Frees blocks from the end of a list on, whose only referents are the caller's, up to the first that somebody else has, or
    /// that something in flight may reach. How many. Holes are none.
    #[inline]
    pub(super) fn free_tail(&self, state: &mut State, ids: &[u32], settled: u64) -> usize {
        let is_ours = |id: &&u32| {
            let Some(block) = self.blocks.get(**id as usize) else { return false };
            // As in `release`: one referent is ours, and nobody can add another.
            let free = block.refs.load(Ordering::Acquire) == 1
                && block.pins.load(Ordering::Acquire) == 0
                && block.touched.load(Ordering::Acquire) <= settled;
            if free {
                block.refs.store(FREE, Ordering::Relaxed);
            }
            free
        };
        // Upwards, as memory comes by itself; mostly all of them are free. Where one is not, what is before it stays.
        let mut count = ids.iter().take_while(is_ours).count();
        if count < ids.len() {
            ids[..count].iter().for_each(|id| self.blocks[*id as usize].refs.store(1, Ordering::Relaxed));
            count = ids[count..].iter().rev().take_while(is_ours).count();
        }
        state.free.extend(ids[ids.len() - count..].iter().rev());
        count
    }

    /// Frees a block that the cache gave up, whose referent is ours now, if nobody else has it and nothing in flight can reach it.
    #[inline]
    fn take(&self, state: &mut State, id: u32, settled: u64) -> Taken {
        let block = &self.blocks[id as usize];
        // As in `release`: one referent is ours, and nobody can add another.
        if block.refs.load(Ordering::Acquire) == 1
            && block.pins.load(Ordering::Acquire) == 0
            && state.is_out_of_reach(block.touched.load(Ordering::Acquire), settled)
        {
            block.refs.store(FREE, Ordering::Relaxed);
            state.free.push(id);
            return Taken::Free;
        }
        self.give_up(id)
    }

    /// The block is not free now. Whether it will be when the steps in flight are done.
    #[cold]
    fn give_up(&self, id: u32) -> Taken {
        let block = &self.blocks[id as usize];
        let is_ours = block.refs.load(Ordering::Acquire) == 1 && block.pins.load(Ordering::Acquire) == 0;
        self.release(id);
        if is_ours { Taken::InFlight } else { Taken::Held }
    }

    /// Takes from the cache, what was unused for longest first, until `count` blocks are free.
    ///
    /// Nothing is taken that could not be enough, so that a request larger than the pool does not empty the cache for nothing; and what
    /// is in flight is taken only as far as it will be enough when it lands, with the `in_flight` that do so anyway.
    fn take_back(&self, state: &mut State, count: usize, mut in_flight: usize) {
        let Some(cache) = state.cache.upgrade() else { return };
        let (settled, idle) = (state.settled(), cache.idle() as usize);
        if state.free.len() >= count || state.free.len() + idle < count {
            return;
        }
        let count = count.max((idle / PART).min(BATCH));
        let mut more = true;
        cache.evict(|blocks, idle| {
            let mut taken = 0;
            while more && taken < blocks.len() {
                let missing = count.saturating_sub(state.free.len());
                let rest = &blocks[..blocks.len() - taken];
                let free = self.free_tail(state, &rest[rest.len().saturating_sub(missing)..], settled);
                taken += free;
                let mut is_on_its_way = false;
                if let Some(id) = blocks[..blocks.len() - taken].last().filter(|_| free < missing) {
                    let what = self.take(state, *id, settled);
                    taken += 1;
                    in_flight += usize::from(matches!(what, Taken::InFlight));
                    is_on_its_way = matches!(what, Taken::InFlight) && in_flight >= count - state.free.len();
                }
                let missing = count.saturating_sub(state.free.len());
                more = missing > 0 && missing <= idle - taken && !is_on_its_way;
            }
            taken
        });
    }

    #[cold]
    pub(super) fn make_room(
        &self,
        state: &mut State,
        epoch: Option<u64>,
        count: usize,
    ) -> Result<(), AcquireBlocksError> {
        if epoch.is_some_and(|epoch| state.epoch != epoch) {
            return Err(AcquireBlocksError::ModelEnded { pool: self.name });
        }
        if state.closed {
            return Err(AcquireBlocksError::Draining { pool: self.name });
        }
        for all in [false, true] {
            let in_flight = self.collect(state, all);
            self.take_back(state, count, in_flight);
            if state.free.len() >= count {
                return Ok(());
            }
        }
        let (needed, free) = (Blocks::new(count as u64), Blocks::new(state.free.len() as u64));
        Err(AcquireBlocksError::Full { pool: self.name, needed, free })
    }

    /// No request gets blocks (`true`), or requests get blocks again. Tells how many blocks requests have.
    pub(crate) fn close(&self, closed: bool) -> Blocks {
        let mut state = self.state.lock();
        let cache = state.cache.upgrade();
        self.collect(&mut state, true);
        let held = |state: &State| u64::from(self.committed()) - state.free.len() as u64;
        let idle = || cache.as_ref().map_or(0, |cache| u64::from(cache.idle()));
        // What only the cache needs does not keep a model. Where requests do, the cache stays: the engine goes on serving.
        if closed && held(&state) == idle() {
            let settled = state.settled();
            cache.iter().for_each(|cache| {
                cache.evict(|blocks, _| {
                    for id in blocks.iter().rev() {
                        self.take(&mut state, *id, settled);
                    }
                    blocks.len()
                });
            });
            self.collect(&mut state, true);
        }
        let live = held(&state).saturating_sub(idle());
        state.closed = closed && live == 0;
        Blocks::new(live)
    }

    /// Gives commits of `step` blocks back from the end, down to `least` blocks, as long as requests have none of their blocks; each
    /// can be taken again. What only the cache needs makes way. `release` is told what stays. The caller knows that no launch is in
    /// flight.
    pub(crate) fn give_back<E>(
        &self,
        step: Blocks,
        least: Blocks,
        release: impl FnOnce(Blocks) -> Result<(), E>,
    ) -> Result<Blocks, E> {
        let mut state = self.state.lock();
        self.collect(&mut state, true);
        let is_free = |id: u32| self.blocks[id as usize].refs.load(Ordering::Acquire) == FREE;
        if let Some(cache) = state.cache.upgrade() {
            let mut is_idle = vec![false; self.most()];
            cache.each_idle(|id| is_idle[id as usize] = true);
            let wanted = self.without(step, least, |id| is_free(id) || is_idle[id as usize]);
            // From the top, so that each look starts where the last one ended.
            let mut top = self.committed();
            let mut is_done = || {
                while top > wanted && is_free(top - 1) {
                    top -= 1;
                }
                top == wanted
            };
            if !is_done() {
                let settled = state.settled();
                let mut more = true;
                cache.evict(|blocks, _| {
                    let mut taken = 0;
                    while more && taken < blocks.len() {
                        taken += 1;
                        self.take(&mut state, blocks[blocks.len() - taken], settled);
                        more = !is_done();
                    }
                    taken
                });
            }
        }
        let from = self.committed();
        let to = self.without(step, least, is_free);
        if to < from {
            release(Blocks::new(u64::from(to)))?;
            state.free.retain(|id| *id < to);
            state.commits += u64::from(from - to) / step.count().max(1);
            self.committed.store(to, Ordering::Release);
        }
        Ok(Blocks::new(u64::from(from - to)))
    }

    /// How many blocks there are without the last commits whose blocks can all go.
    fn without(&self, step: Blocks, least: Blocks, can_go: impl Fn(u32) -> bool) -> u32 {
        let mut to = self.committed();
        while let Some(next) = to.checked_sub(step.count() as u32).filter(|next| u64::from(*next) >= least.count()) {
            if !(next..to).all(&can_go) {
                break;
            }
            to = next;
        }
        to
    }
}
