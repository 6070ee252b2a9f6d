//! The pool that most engines have: ids in a free vector and reference counts beside it, under one mutex.
//!
//! As lean as it gets: references borrow the pool instead of counting it, so it is not slower than it has to be.

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

/// One reference to a block.
#[derive(Debug)]
pub(crate) struct MutexRef<'p> {
    pool: &'p MutexPool,
    id: u32,
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

    /// A free block.
    pub(crate) fn acquire(&self) -> Option<MutexRef<'_>> {
        let mut state = self.state();
        let id = state.free.pop()?;
        state.referents[id as usize] = 1;
        Some(MutexRef { pool: self, id })
    }

    /// `count` free blocks under one lock, or none of them.
    pub(crate) fn acquire_many<'p>(&'p self, count: usize, into: &mut Vec<MutexRef<'p>>) -> bool {
        let mut state = self.state();
        let Some(rest) = state.free.len().checked_sub(count) else { return false };
        let State { free, referents } = &mut *state;
        into.extend(free.drain(rest..).map(|id| {
            referents[id as usize] = 1;
            MutexRef { pool: self, id }
        }));
        true
    }

    /// Free blocks.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.state().free.len()
    }
}

impl MutexRef<'_> {
    /// The block's id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// One more reference to the same block.
    pub(crate) fn share(&self) -> Self {
        self.pool.state().referents[self.id as usize] += 1;
        Self { pool: self.pool, id: self.id }
    }
}

impl Drop for MutexRef<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let left = &mut state.referents[self.id as usize];
        *left -= 1;
        if *left == 0 {
            state.free.push(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_does_what_a_pool_must() {
        let pool = MutexPool::new(3);
        let first = pool.acquire().unwrap();
        let shared = first.share();
        assert_eq!(first.id(), shared.id());
        let mut many = Vec::new();
        assert!(!pool.acquire_many(3, &mut many) && many.is_empty());
        assert!(pool.acquire_many(2, &mut many) && pool.acquire().is_none());
        drop(first);
        assert_eq!(pool.free(), 0);
        drop((shared, many));
        assert_eq!(pool.free(), 3);
    }
}
