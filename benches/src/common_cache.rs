//! The prefix cache that most engines have: a hash map from a block's chained hash to the block, counts, and a doubly linked list
//! through the blocks that nobody holds, those unused for longest in front. All under one mutex.
//!
//! It trusts its hash: two prompts that collide are one to it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No block.
const NONE: u32 = u32::MAX;

/// Blocks by content. `S` hashes tokens, and the map's keys.
#[derive(Debug)]
pub(crate) struct CommonCache<S> {
    per_block: usize,
    hasher: S,
    state: Mutex<State<S>>,
}

#[derive(Debug)]
struct State<S> {
    cached: HashMap<u64, u32, S>,
    blocks: Vec<Block>,
    /// The ends of the list of blocks that nobody holds.
    first: u32,
    last: u32,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    hash: Option<u64>,
    referents: u32,
    previous: u32,
    next: u32,
}

impl<S: BuildHasher + Clone> CommonCache<S> {
    /// Free blocks, and nothing cached.
    pub(crate) fn new(blocks: u32, per_block: usize, hasher: S) -> Self {
        let free = Block { hash: None, referents: 0, previous: NONE, next: NONE };
        let cached = HashMap::with_capacity_and_hasher(blocks as usize, hasher.clone());
        let mut state = State { cached, blocks: vec![free; blocks as usize], first: NONE, last: NONE };
        (0..blocks).for_each(|block| state.append(block));
        CommonCache { per_block, hasher, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chained hash of each full block of a prompt.
    fn hashes<'h>(&'h self, tokens: &'h [u32]) -> impl Iterator<Item = u64> + 'h {
        tokens.chunks_exact(self.per_block).scan(0, |parent, tokens| {
            let mut hasher = self.hasher.build_hasher();
            hasher.write_u64(*parent);
            tokens.hash(&mut hasher);
            *parent = hasher.finish();
            Some(*parent)
        })
    }

    /// Appends the cached blocks that a prompt starts with, and holds them.
    pub(crate) fn lookup(&self, tokens: &[u32], table: &mut Vec<u32>) {
        let mut state = self.state();
        for hash in self.hashes(tokens) {
            let Some(&block) = state.cached.get(&hash) else { break };
            state.hold(block);
            table.push(block);
        }
    }

    /// Appends `count` blocks, cached ones that nobody holds if need be, and holds them. All or none.
    pub(crate) fn acquire(&self, count: usize, table: &mut Vec<u32>) -> bool {
        let mut state = self.state();
        let before = table.len();
        for _ in 0..count {
            let block = state.first;
            if block == NONE {
                drop(state);
                self.release(table.drain(before..).as_slice());
                return false;
            }
            if let Some(hash) = state.blocks[block as usize].hash.take() {
                state.cached.remove(&hash);
            }
            state.hold(block);
            table.push(block);
        }
        true
    }

    /// Names what is in held blocks.
    pub(crate) fn publish(&self, tokens: &[u32], table: &[u32]) {
        let mut state = self.state();
        for (hash, &block) in self.hashes(tokens).zip(table) {
            let State { cached, blocks, .. } = &mut *state;
            cached.entry(hash).or_insert_with(|| {
                blocks[block as usize].hash = Some(hash);
                block
            });
        }
    }

    /// Lets go of blocks, the last of the prompt first, so that it is evicted first.
    pub(crate) fn release(&self, table: &[u32]) {
        let mut state = self.state();
        for &block in table.iter().rev() {
            state.blocks[block as usize].referents -= 1;
            if state.blocks[block as usize].referents == 0 {
                state.append(block);
            }
        }
    }
}

impl<S> State<S> {
    fn hold(&mut self, block: u32) {
        let Block { referents, previous, next, .. } = self.blocks[block as usize];
        self.blocks[block as usize].referents = referents + 1;
        if referents > 0 {
            return;
        }
        match previous {
            NONE => self.first = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.blocks[next as usize].previous = previous,
        }
    }

    fn append(&mut self, block: u32) {
        let last = std::mem::replace(&mut self.last, block);
        let known = &mut self.blocks[block as usize];
        (known.previous, known.next) = (last, NONE);
        match last {
            NONE => self.first = block,
            last => self.blocks[last as usize].next = block,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    #[test]
    fn the_peer_does_what_a_prefix_cache_must() {
        let cache = CommonCache::new(4, 2, RandomState::new());
        let (mut one, mut other, mut again) = (Vec::new(), Vec::new(), Vec::new());
        cache.lookup(&[1, 2, 3, 4], &mut one);
        assert!(one.is_empty() && cache.acquire(2, &mut one));
        cache.publish(&[1, 2, 3, 4], &one);
        cache.lookup(&[1, 2, 3, 4, 5], &mut other);
        assert_eq!(one, other);
        cache.release(&one);
        assert!(!cache.acquire(3, &mut again) && again.is_empty());
        cache.release(&other);
        // The last block of the prompt goes first.
        assert!(cache.acquire(3, &mut again));
        other.clear();
        cache.lookup(&[1, 2, 3, 4], &mut other);
        assert_eq!(other, one[..1]);
    }
}
