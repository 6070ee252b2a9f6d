//! The bookkeeping of one pool: which blocks are free, how many referents each has, and what may still be in flight.
//!
//! Releasing is a plain store (the last referent knows that it is the last), so that it is cheap on every thread.
//! Acquiring takes the lock, pops from a free list, and collects released blocks only when that runs dry. A block is
//! collected when nobody refers to it, no page table names it, and every stream has finished the last step that could
//! reach it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::{AcquireBlocksError, lock::SpinLock};
use crate::{
    record::Lane,
    units::{Blocks, Tokens},
};

/// `refs` of a block in the free list, or not committed yet.
const FREE: u32 = u32::MAX;
/// A page table's entry for "no block".
pub(crate) const HOLE: u32 = u32::MAX;
/// The most blocks a pool can have: ids and counts share 32 bits with the two marks above.
pub(crate) const MOST: u64 = (u32::MAX / 2) as u64;

pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) per_block: Tokens,
    /// Units of the kind's element in one block.
    pub(crate) block_units: usize,
    /// Referents of each block.
    refs: Box<[AtomicU32]>,
    /// Page table rows that name each block.
    pins: Box<[AtomicU32]>,
    /// The last step that could reach each block, while no row named it.
    touched: Box<[AtomicU64]>,
    /// The step from which on launches could write each block for its present owner. Zero: none yet.
    reached: Box<[AtomicU64]>,
    /// Blocks with memory behind them.
    committed: AtomicU32,
    state: SpinLock<State>,
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
    /// Tables of ended requests, to be used again: a request costs no heap allocation after warm-up.
    spare_tables: Vec<Vec<u32>>,
}

fn cells<T: Default>(count: u64) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

impl Core {
    pub(crate) fn new(
        name: &'static str,
        per_block: Tokens,
        block_units: usize,
        committed: Blocks,
        most: Blocks,
        commits: u64,
    ) -> Arc<Self> {
        let most = most.count();
        let refs: Box<[AtomicU32]> = (0..most).map(|_| AtomicU32::new(FREE)).collect();
        let mut free = Vec::with_capacity(most as usize);
        free.extend((0..committed.count() as u32).rev());
        let state =
            State { free, lanes: Vec::new(), commits, epoch: 0, closed: false, spare_tables: Vec::with_capacity(64) };
        Arc::new(Core {
            id: crate::next_id(),
            name,
            per_block,
            block_units,
            refs,
            pins: cells(most),
            touched: cells(most),
            reached: cells(most),
            committed: AtomicU32::new(committed.count() as u32),
            state: SpinLock::new(state),
        })
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

    /// Gives commits of `step` blocks back from the end, down to `least` blocks, as long as all their blocks are free; each can
    /// be taken again. `release` is told what stays. The caller knows that no launch is in flight.
    pub(crate) fn give_back<E>(
        &self,
        step: Blocks,
        least: Blocks,
        release: impl FnOnce(Blocks) -> Result<(), E>,
    ) -> Result<Blocks, E> {
        let mut state = self.state.lock();
        self.collect(&mut state);
        let from = self.committed();
        let mut to = from;
        while let Some(next) = to.checked_sub(step.count() as u32).filter(|next| u64::from(*next) >= least.count()) {
            let is_free = |id: u32| self.refs[id as usize].load(Ordering::Acquire) == FREE;
            if !(next..to).all(is_free) {
                break;
            }
            to = next;
        }
        if to < from {
            release(Blocks::new(u64::from(to)))?;
            state.free.retain(|id| *id < to);
            state.commits += u64::from(from - to) / step.count().max(1);
            self.committed.store(to, Ordering::Release);
        }
        Ok(Blocks::new(u64::from(from - to)))
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

    /// No request gets blocks (`true`), or requests get blocks again. Tells how many are out.
    pub(crate) fn close(&self, closed: bool) -> Blocks {
        let mut state = self.state.lock();
        self.collect(&mut state);
        let live = u64::from(self.committed()) - state.free.len() as u64;
        state.closed = closed && live == 0;
        Blocks::new(live)
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
        self.collect(&mut state);
        Blocks::new(state.free.len() as u64)
    }

    /// Moves to the free list what nobody refers to and nothing in flight can reach.
    fn collect(&self, state: &mut State) {
        let State { free, lanes, .. } = state;
        // Low blocks end up on top.
        for id in (0..self.committed()).rev() {
            let index = id as usize;
            // Acquire: pairs with the release of the last referent, and makes its `touched` visible.
            if self.refs[index].load(Ordering::Acquire) == 0 && self.pins[index].load(Ordering::Acquire) == 0 {
                let touched = self.touched[index].load(Ordering::Acquire);
                if lanes.iter().all(|lane| lane.settled(touched)) {
                    self.refs[index].store(FREE, Ordering::Relaxed);
                    free.push(id);
                }
            }
        }
    }

    /// Takes `count` blocks, all or none, for a request of epoch `epoch`.
    #[inline]
    pub(crate) fn acquire(
        &self,
        epoch: u64,
        count: usize,
        mut take: impl FnMut(u32),
    ) -> Result<(), AcquireBlocksError> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return Err(AcquireBlocksError::ModelEnded { pool: self.name });
        }
        if state.closed {
            return Err(AcquireBlocksError::Draining { pool: self.name });
        }
        if state.free.len() < count {
            self.collect(&mut state);
        }
        let Some(left) = state.free.len().checked_sub(count) else {
            let (needed, free) = (Blocks::new(count as u64), Blocks::new(state.free.len() as u64));
            return Err(AcquireBlocksError::Full { pool: self.name, needed, free });
        };
        for id in state.free.drain(left..).rev() {
            self.refs[id as usize].store(1, Ordering::Relaxed);
            self.reached[id as usize].store(0, Ordering::Relaxed);
            take(id);
        }
        Ok(())
    }

    /// A referent is gone.
    #[inline]
    pub(crate) fn release(&self, id: u32) {
        let refs = &self.refs[id as usize];
        // The only referent is the one being dropped: nobody can add another, so no read-modify-write is needed.
        if refs.load(Ordering::Acquire) == 1 {
            refs.store(0, Ordering::Release);
        } else {
            refs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Another referent of a block that has one.
    pub(crate) fn share(&self, id: u32) {
        let before = self.refs[id as usize].fetch_add(1, Ordering::Relaxed);
        // As `Arc` does: only a program that forgets referents by the billion comes here, and the count must not wrap.
        if u64::from(before) >= MOST {
            std::process::abort();
        }
    }

    /// How many referents a block has.
    pub(crate) fn referents(&self, id: u32) -> u32 {
        self.refs[id as usize].load(Ordering::Acquire)
    }

    /// Launches of step `step` can reach the block through a span.
    pub(crate) fn touch(&self, id: u32, step: u64, written: bool) {
        self.touched[id as usize].fetch_max(step, Ordering::AcqRel);
        if written {
            self.reached[id as usize].store(step, Ordering::Release);
        }
    }

    /// A page table's row names the block, from step `step` on.
    pub(crate) fn pin(&self, id: u32, step: u64) {
        self.pins[id as usize].fetch_add(1, Ordering::AcqRel);
        let _ = self.reached[id as usize].compare_exchange(0, step, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A row does not name it any more; launches up to step `step` may have read the old row.
    pub(crate) fn unpin(&self, id: u32, step: u64) {
        self.touched[id as usize].fetch_max(step, Ordering::AcqRel);
        self.pins[id as usize].fetch_sub(1, Ordering::AcqRel);
    }

    /// The step from which on launches could write the block. Zero: none could.
    pub(crate) fn reached(&self, id: u32) -> u64 {
        self.reached[id as usize].load(Ordering::Acquire)
    }

    /// Whether nothing in flight can reach the block: no row names it, and every stream is past the last step that could,
    /// or `proof` says so.
    pub(crate) fn is_quiet(&self, id: u32, proof: &crate::Settled) -> bool {
        if self.pins[id as usize].load(Ordering::Acquire) != 0 {
            return false;
        }
        let touched = self.touched[id as usize].load(Ordering::Acquire);
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
