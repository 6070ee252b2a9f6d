//! The pool that most engines have: ids in a free vector and reference counts beside it, under one mutex.
//!
//! Three ways to hold its blocks, from what memtier's handles can do down to the least that works: references that own
//! the pool (they may outlive every borrow, like a `BlockRef`), references that borrow it, and a request that keeps bare
//! ids and gives all of them back under one lock.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks by id.
#[derive(Debug)]
pub(crate) struct MutexPool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    referents: Vec<u32>,
}

/// One reference to a block of the pool behind `P`: a `&MutexPool` or an `Arc<MutexPool>`.
#[derive(Debug)]
pub(crate) struct MutexRef<P: Deref<Target = MutexPool>> {
    pool: P,
    id: u32,
}

/// The blocks of one request, as bare ids.
#[derive(Debug)]
pub(crate) struct MutexTicket<'p> {
    pool: &'p MutexPool,
    ids: Vec<u32>,
}

impl MutexPool {
    /// A pool of free blocks.
    pub(crate) fn new(blocks: u32) -> Self {
        let state = State { free: (0..blocks).rev().collect(), referents: vec![0; blocks as usize] };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request without blocks, with room for `most` of them.
    pub(crate) fn open(&self, most: usize) -> MutexTicket<'_> {
        MutexTicket { pool: self, ids: Vec::with_capacity(most) }
    }

    /// Free blocks.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.state().free.len()
    }
}

impl<P: Deref<Target = MutexPool> + Clone> MutexRef<P> {
    /// A free block.
    pub(crate) fn acquire(pool: &P) -> Option<Self> {
        let mut state = pool.state();
        let id = state.free.pop()?;
        state.referents[id as usize] = 1;
        drop(state);
        Some(Self { pool: pool.clone(), id })
    }

    /// The block's id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// One more reference to the same block.
    pub(crate) fn share(&self) -> Self {
        self.pool.state().referents[self.id as usize] += 1;
        Self { pool: self.pool.clone(), id: self.id }
    }
}

impl<P: Deref<Target = MutexPool>> Drop for MutexRef<P> {
    fn drop(&mut self) {
        self.pool.state().release(self.id);
    }
}

impl MutexTicket<'_> {
    /// `count` more blocks under one lock, or none of them.
    pub(crate) fn push(&mut self, count: usize) -> bool {
        let mut state = self.pool.state();
        let Some(rest) = state.free.len().checked_sub(count) else { return false };
        let State { free, referents } = &mut *state;
        self.ids.extend(free.drain(rest..).inspect(|id| referents[*id as usize] = 1));
        true
    }

    /// Gives all of them back under one lock.
    pub(crate) fn clear(&mut self) {
        let mut state = self.pool.state();
        self.ids.drain(..).for_each(|id| state.release(id));
    }
}

impl State {
    fn release(&mut self, id: u32) {
        let left = &mut self.referents[id as usize];
        *left -= 1;
        if *left == 0 {
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_peer_does_what_a_pool_must() {
        let pool = Arc::new(MutexPool::new(3));
        let first = MutexRef::acquire(&pool).unwrap();
        let shared = first.share();
        assert_eq!(first.id(), shared.id());
        let mut ticket = pool.open(3);
        assert!(!ticket.push(3) && ticket.ids.is_empty());
        assert!(ticket.push(2) && MutexRef::acquire(&&*pool).is_none());
        drop(first);
        assert_eq!(pool.free(), 0);
        drop(shared);
        ticket.clear();
        assert_eq!(pool.free(), 3);
    }
}
