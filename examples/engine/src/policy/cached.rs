//! Blocks that no request needs.

use memtier::Blocks;

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
