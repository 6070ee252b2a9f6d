//! Blocks that no request needs.

use memtier::{Blocks, PrefixCache, Shareable};

/// Something that keeps blocks of the KV pool alive for later requests: a prefix cache.
///
/// The engine asks it to give blocks up when the ladder says so, and when a request finds the pool full. It is only asked
/// between passes. Blocks that running requests share stay theirs; what the cache gives up is its own hold on them.
pub trait CachedBlocks: Send {
    /// Blocks it holds.
    fn held(&self) -> Blocks;

    /// Gives up blocks, those unused for longest first, until it holds at most `most`. Returns how many it gave up: fewer
    /// than asked for where some are pinned. Must not take memory from the heap.
    fn evict_to(&mut self, most: Blocks) -> Blocks;
}

/// What counts as held is what nothing else needs: blocks that a running request shares go on living when the cache gives them
/// up, and free nothing.
impl<K: Shareable> CachedBlocks for PrefixCache<K> {
    fn held(&self) -> Blocks {
        self.stats().reclaimable
    }

    fn evict_to(&mut self, most: Blocks) -> Blocks {
        self.evict(self.held().beyond(most))
    }
}
