//! The bookkeeping of one pool: which blocks are free, how many referents each has, and what may still be in flight.
//!
//! Releasing is a plain store (the last referent knows that it is the last), so that it is cheap on every thread.
//! Acquiring takes the lock, pops from a free list, and collects released blocks only when that runs dry. A block is
//! collected when nobody refers to it, no page table names it, and every stream has finished the last step that could
//! reach it.

mod room;

use std::{
    ops::Deref,
    ptr::NonNull,
    sync::{Arc, Weak},
};

use super::{
    AcquireBlocksError,
    lock::SpinLock,
    prefix_cache::Tree,
    sync::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use crate::{
    backend::books,
    record::Lane,
    units::{Blocks, Tokens},
};

/// `refs` of a block in the free list, or not committed yet.
const FREE: u32 = u32::MAX;
/// A page table's entry for "no block".
pub(crate) const HOLE: u32 = u32::MAX;
/// Blocks that share one note of change, and such groups that share another: collecting looks where something happened, not
/// at all blocks.
const GROUP: usize = 64;
/// The most blocks a pool can have: ids and counts share 32 bits with the two marks above.
pub(crate) const MOST: u64 = (u32::MAX / 2) as u64;

pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) per_block: Tokens,
    /// Units of the kind's element in one block.
    pub(crate) block_units: usize,
    blocks: Box<[Block]>,
    /// Blocks with memory behind them.
    committed: AtomicU32,
    /// The block that was released last, perhaps: still in the cache, and found without looking at all of them. A hint only:
    /// its books say whether it can be taken, and a lost hint is found by collecting.
    hint: AtomicU32,
    /// For every [`GROUP`] blocks, whether one of them may have become free since the last look.
    changed: Box<[AtomicBool]>,
    /// The same for every [`GROUP`] groups, and for all of them.
    changed_groups: Box<[AtomicBool]>,
    changed_any: AtomicBool,
    state: SpinLock<State>,
}

/// The books of one block, together in half a cache line.
#[derive(Default)]
#[repr(align(32))]
struct Block {
    /// Referents; [`FREE`] in the free list.
    refs: AtomicU32,
    /// Page table rows that name it.
    pins: AtomicU32,
    /// The last step that could reach it, while no row named it.
    touched: AtomicU64,
    /// The step from which on launches could write it for its present owner. Zero: none yet.
    reached: AtomicU64,
}

/// Shares the books among a pool, its handles, tickets and prefixes.
///
/// A [`BlockRef`](super::BlockRef) has a plain pointer to them instead: counting it twice, here and in its block, would make
/// every acquisition dearer by two read-modify-writes. So the books of a pool that is gone are freed with the last owner if
/// no block has a referent then, and never otherwise.
pub(crate) struct Owner(NonNull<Core>);

pub(crate) type SharedCore = Arc<Owner>;

// SAFETY: an owner gives `&Core`, which is `Sync`, and frees it, which is `Send`.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Deref for Owner {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        // SAFETY: the books live at least as long as their last owner.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Acquire: pairs with the release of a referent, whose last access to the books that was.
        let unused = |block: &Block| matches!(block.refs.load(Ordering::Acquire), 0 | FREE);
        if self.blocks.iter().all(unused) {
            // SAFETY: the box that `new` leaked. No owner is left, and no block reference: it would count in its block, and
            // none can appear, since only an owner or another reference makes one.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

pub(crate) struct State {
    free: Vec<u32>,
    /// Streams that were handed the pool's addresses.
    lanes: Vec<Arc<Lane>>,
    /// Planned commits that were not taken yet.
    pub(crate) commits: u64,
    /// Grows when a model ends: requests of an earlier one get no more blocks.
    epoch: u64,
    /// Between `drain` and `resume`.
    closed: bool,
    /// What caches this pool's blocks: asked for room when the pool is dry.
    cache: Weak<Tree>,
    /// Tables of ended requests, to be used again: a request costs no heap allocation after warm-up.
    spare_tables: Vec<Vec<u32>>,
}

impl Block {
    /// Whether it has no referent, is not in the free list, and no row names it.
    #[inline]
    fn is_quiet(&self) -> bool {
        // Acquire: pairs with the release of the last referent, and makes its `touched` visible.
        self.refs.load(Ordering::Acquire) == 0 && self.pins.load(Ordering::Acquire) == 0
    }
}

impl State {
    /// Blocks that no step after this one could reach are out of reach of everything in flight.
    fn settled(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.settled_up_to()).min().unwrap_or(u64::MAX)
    }

    /// Whether nothing in flight can reach a block that was read to be quiet. `settled` was looked at before; a step that
    /// began since can have touched the block, so where that is not enough the streams are asked again, after `touched`.
    fn is_out_of_reach(&self, touched: u64, settled: u64) -> bool {
        touched <= settled || self.lanes.iter().all(|lane| lane.settled(touched))
    }
}

impl Core {
    pub(crate) fn shared(
        name: &'static str,
        per_block: Tokens,
        block_units: usize,
        committed: Blocks,
        most: Blocks,
        commits: u64,
    ) -> SharedCore {
        let most = most.count();
        let notes = |per: usize| (0..most.div_ceil(per as u64)).map(|_| AtomicBool::new(false)).collect();
        let block = || Block { refs: AtomicU32::new(FREE), ..Block::default() };
        let mut free = Vec::with_capacity(most as usize);
        free.extend((0..committed.count() as u32).rev());
        let state = State {
            free,
            lanes: Vec::new(),
            commits,
            epoch: 0,
            closed: false,
            cache: Weak::new(),
            spare_tables: Vec::with_capacity(64),
        };
        let core = Box::new(Core {
            id: crate::next_id(),
            name,
            per_block,
            block_units,
            blocks: books(most as usize, block).unwrap_or_else(|| (0..most).map(|_| block()).collect()),
            committed: AtomicU32::new(committed.count() as u32),
            hint: AtomicU32::new(HOLE),
            changed: notes(GROUP),
            changed_groups: notes(GROUP * GROUP),
            changed_any: AtomicBool::new(false),
            state: SpinLock::new(state),
        });
        Arc::new(Owner(NonNull::from(Box::leak(core))))
    }

    /// Blocks that it can ever have.
    pub(crate) fn most(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that have memory.
    pub(crate) fn committed(&self) -> u32 {
        self.committed.load(Ordering::Acquire)
    }

    /// Adds `more` blocks when `commit` has committed memory for the new total. Both under the lock: growing and giving back
    /// must not overlap.
    pub(crate) fn grow<E>(&self, more: Blocks, commit: impl FnOnce(Blocks) -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        let from = self.committed();
        let to = from + more.count() as u32;
        commit(Blocks::new(u64::from(to)))?;
        self.committed.store(to, Ordering::Release);
        // Below what is free already: low blocks are handed out first, so that the end can be given back.
        state.free.splice(0..0, (from..to).rev());
        Ok(())
    }

    /// Takes a planned commit, if there is one left.
    pub(crate) fn take_commit(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.commits.checked_sub(1);
        state.commits = left.unwrap_or(0);
        left.is_some()
    }

    pub(crate) fn commits_left(&self) -> u64 {
        self.state.lock().commits
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// A model ends, or the pool is gone.
    pub(crate) fn end_epoch(&self) {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.closed = false;
    }

    /// A stream is handed the pool's addresses.
    pub(crate) fn seen_by(&self, lane: &Arc<Lane>) {
        let lanes = &mut self.state.lock().lanes;
        if !lanes.iter().any(|known| Arc::ptr_eq(known, lane)) {
            lanes.push(lane.clone());
        }
    }

    /// Whether `lane` was handed the pool's addresses.
    pub(crate) fn knows(&self, lane: &Arc<Lane>) -> bool {
        self.state.lock().lanes.iter().any(|known| Arc::ptr_eq(known, lane))
    }

    /// Blocks in the free list, after collecting.
    pub(crate) fn free(&self) -> Blocks {
        let mut state = self.state.lock();
        self.collect(&mut state, true);
        Blocks::new(state.free.len() as u64)
    }

    /// Takes `count` blocks, all or none, for a request of epoch `epoch` (of the present one, without). `take` sees their ids.
    #[inline]
    pub(crate) fn acquire(
        &self,
        epoch: Option<u64>,
        count: usize,
        take: impl FnOnce(&[u32]),
    ) -> Result<(), AcquireBlocksError> {
        let mut state = self.state.lock();
        if state.free.len() < count || state.closed || epoch.is_some_and(|epoch| state.epoch != epoch) {
            self.make_room(&mut state, epoch, count)?;
        }
        if count == 1 {
            let hinted = self.hinted(&state);
            let Some(id) = hinted.or_else(|| state.free.pop()) else { unreachable!("there is room for one") };
            let block = &self.blocks[id as usize];
            block.refs.store(1, Ordering::Relaxed);
            block.reached.store(0, Ordering::Relaxed);
            take(&[id]);
            return Ok(());
        }
        let left = state.free.len() - count;
        let ids = &state.free[left..];
        for id in ids {
            let block = &self.blocks[*id as usize];
            block.refs.store(1, Ordering::Relaxed);
            block.reached.store(0, Ordering::Relaxed);
        }
        take(ids);
        state.free.truncate(left);
        Ok(())
    }

    /// Takes the block that was released last, if it can be taken.
    #[inline]
    fn hinted(&self, state: &State) -> Option<u32> {
        let id = self.hint.load(Ordering::Relaxed);
        let block = self.blocks.get(id as usize)?;
        self.hint.store(HOLE, Ordering::Relaxed);
        let free = block.is_quiet() && {
            let touched = block.touched.load(Ordering::Acquire);
            touched == 0 || state.lanes.iter().all(|lane| lane.settled(touched))
        };
        free.then_some(id)
    }

    /// A referent is gone.
    #[inline]
    pub(crate) fn release(&self, id: u32) {
        self.note(id);
        self.hint.store(id, Ordering::Relaxed);
        self.drop_referent(id);
    }

    /// Several referents are gone: what can be free is free at once, unless somebody has the lock; for the rest, one hint is enough,
    /// and a note for each run of blocks in one group. Holes are none.
    #[inline]
    pub(crate) fn release_all(&self, ids: &[u32]) {
        match ids {
            [] | [HOLE] => {}
            [id] => self.release(*id),
            ids => self.release_many(ids),
        }
    }

    fn release_many(&self, mut ids: &[u32]) {
        if let Some(mut state) = self.state.try_lock() {
            let settled = state.settled();
            let free = self.free_tail(&mut state, ids, settled);
            ids = &ids[..ids.len() - free];
        }
        let mut noted = usize::MAX;
        for id in ids.iter().copied().filter(|id| *id != HOLE) {
            if id as usize / GROUP != noted {
                noted = id as usize / GROUP;
                self.note(id);
            }
            self.drop_referent(id);
        }
        if let Some(last) = ids.last() {
            self.hint.store(*last, Ordering::Relaxed);
        }
    }

    #[inline]
    fn drop_referent(&self, id: u32) {
        let refs = &self.blocks[id as usize].refs;
        // The only referent is the one being dropped: nobody can add another, so no read-modify-write is needed. The last
        // access to these books, on a thread that holds no owner.
        if refs.load(Ordering::Acquire) == 1 {
            refs.store(0, Ordering::Release);
        } else {
            refs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Another referent of a block that has one.
    pub(crate) fn share(&self, id: u32) {
        let before = self.blocks[id as usize].refs.fetch_add(1, Ordering::Relaxed);
        // As `Arc` does: only a program that forgets referents by the billion comes here, and the count must not wrap.
        if u64::from(before) >= MOST {
            std::process::abort();
        }
    }

    /// How many referents a block has.
    pub(crate) fn referents(&self, id: u32) -> u32 {
        self.blocks[id as usize].refs.load(Ordering::Acquire)
    }

    /// Whether a page table row names it.
    pub(crate) fn is_pinned(&self, id: u32) -> bool {
        self.blocks[id as usize].pins.load(Ordering::Acquire) != 0
    }

    /// Launches of step `step` can reach the block through a span.
    pub(crate) fn touch(&self, id: u32, step: u64, written: bool) {
        self.blocks[id as usize].touched.fetch_max(step, Ordering::AcqRel);
        if written {
            self.blocks[id as usize].reached.store(step, Ordering::Release);
        }
    }

    /// A page table's row names the block, from step `step` on.
    pub(crate) fn pin(&self, id: u32, step: u64) {
        self.blocks[id as usize].pins.fetch_add(1, Ordering::AcqRel);
        let _ = self.blocks[id as usize].reached.compare_exchange(0, step, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A row does not name it any more; launches up to step `step` may have read the old row.
    pub(crate) fn unpin(&self, id: u32, step: u64) {
        self.blocks[id as usize].touched.fetch_max(step, Ordering::AcqRel);
        self.note(id);
        self.blocks[id as usize].pins.fetch_sub(1, Ordering::AcqRel);
    }

    /// The step from which on launches could write the block. Zero: none could.
    pub(crate) fn reached(&self, id: u32) -> u64 {
        self.blocks[id as usize].reached.load(Ordering::Acquire)
    }

    /// Whether nothing in flight can reach the block: no row names it, and every stream is past the last step that could,
    /// or `proof` says so.
    pub(crate) fn is_quiet(&self, id: u32, proof: &crate::Settled) -> bool {
        if self.blocks[id as usize].pins.load(Ordering::Acquire) != 0 {
            return false;
        }
        let touched = self.blocks[id as usize].touched.load(Ordering::Acquire);
        let covered = |lane: &Arc<Lane>| Arc::ptr_eq(lane, &proof.lane) && touched <= proof.step;
        self.state.lock().lanes.iter().all(|lane| covered(lane) || lane.settled(touched))
    }

    /// An empty table for a request, with room for `blocks`.
    pub(crate) fn table(&self, blocks: usize) -> Vec<u32> {
        let spare = self.state.lock().spare_tables.pop();
        let mut table = spare.unwrap_or_default();
        table.reserve_exact(blocks.saturating_sub(table.len()));
        table
    }

    /// Takes the table of an ended request back.
    pub(crate) fn recycle(&self, mut table: Vec<u32>) {
        table.clear();
        let spare = &mut self.state.lock().spare_tables;
        if spare.len() < spare.capacity() {
            spare.push(table);
        }
    }
}
