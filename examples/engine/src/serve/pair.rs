//! A prefix of a model whose layers are in two memories: it is in both, or it is none.
//!
//! Each part has a cache of its own blocks. Both are asked the same, given the same and left by the same requests, in the same order, so
//! both would give up the same blocks next. Where one of the pools ran dry, the other gives up as many: what is left is the same.

use memtier::{Blocks, PrefixCache, PrefixLease};

use super::{
    Llm,
    prefixes::{Kv, Prefixes},
    states::Found,
};
use crate::{EngineError, compute::Compute, policy::CachedBlocks};

/// What is cached of a prompt, and what a window must be filled with behind it.
pub(super) type Prefix = (PrefixLease<Kv>, Option<Found>);

/// The longest part of a prompt that both parts have.
///
/// # Errors
/// [`EngineError`].
pub(super) fn find_both(parts: [&mut Prefixes; 2], prompt: &[u32]) -> Result<[Prefix; 2], EngineError> {
    let [main, front] = parts;
    let [mut here, mut there] = [main.find(prompt)?, front.find(prompt)?];
    // A copy of a window that only one has makes the other's shorter, and so on: to nothing at the latest.
    loop {
        match (here.0.blocks(), there.0.blocks()) {
            (long, short) if long > short => main.shorten(&mut here, short, prompt)?,
            (short, long) if long > short => front.shorten(&mut there, short, prompt)?,
            _ => return Ok([here, there]),
        }
    }
}

/// Both caches, for the memory policy.
pub(super) struct CachedPairs(pub(super) [PrefixCache<Kv>; 2]);

impl CachedBlocks for CachedPairs {
    fn held(&self) -> Blocks {
        self.0[0].held()
    }

    fn evict_to(&mut self, most: Blocks) -> Blocks {
        let gone = self.0[0].evict_to(most);
        in_step(&self.0);
        gone
    }
}

/// What one has given up since they were made, the other gives up, too.
fn in_step(caches: &[PrefixCache<Kv>; 2]) {
    let [main, front] = caches.each_ref().map(|cache| Blocks::new(cache.stats().evicted));
    caches[0].evict(front.beyond(main));
    caches[1].evict(main.beyond(front));
}

impl<S: Compute> Llm<S> {
    /// Both caches, where there are two.
    pub(super) fn cached_pairs(&self) -> Option<[PrefixCache<Kv>; 2]> {
        let (main, front) = (self.prefixes.as_ref()?, self.front.as_ref()?.prefixes.as_ref()?);
        Some([main.cache.clone(), front.cache.clone()])
    }

    /// Brings both caches to the same, after a request took blocks.
    pub(super) fn caches_in_step(&self) {
        if let Some(caches) = self.cached_pairs() {
            in_step(&caches);
        }
    }
}
