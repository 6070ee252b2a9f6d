//! The prefix cache: blocks found by what is in them.
//!
//! A request that starts like an earlier one starts with its blocks. The cache owns a referent of every block in it; a request holds
//! a [`PrefixLease`], which keeps a whole path with one count and gives the blocks back when it drops, wherever and however that
//! happens. What nothing but the cache needs counts as free: a pool that runs dry takes the blocks unused for longest.
//!
//! A block is found by comparing everything: the block before it, what is in it besides tokens, and its tokens. No hash is trusted.

mod content;
mod events;
mod evict;
mod export;
mod hash;
mod index;
mod lease;
#[cfg(all(test, loom))]
mod model;
mod pins;
mod slots;
mod snapshots;
mod spill;
mod tree;
mod uses;

use std::{fmt, marker::PhantomData, sync::Arc};

pub use content::{BlockContent, Content, Contents, Digest, Extra, Root, RootKey};
pub use events::CacheEvent;
pub use export::{CachedBlock, Export};
pub(crate) use lease::Lease;
pub use pins::{Pin, PinError, PinOwner};
pub use snapshots::{FoundState, KeptState, SnapshotSpec, SnapshotStats, Snapshots, TieredSnapshots};
pub use spill::{TierError, TierSpec, TierStats, TieredCache};
pub(crate) use tree::Tree;

use super::{BlockRef, InFlight, PoolHandle, Shareable, Ticket, kind::PoolKind};
use crate::{
    element::Element,
    record::Settled,
    units::{Blocks, Tokens},
};
use events::Events;
use lease::At;

/// Models and adapters at a time: their keys are compared one by one.
const MOST_ROOTS: usize = 1 << 16;

/// How large a cache may become. Its books are allocated when it is made: about 110 bytes and the tokens for each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixCacheSpec {
    /// Blocks that can be cached at a time: the blocks themselves are the pool's, so no more than it has.
    pub most: Blocks,
    /// Roots (models with their adapters) at a time: up to 65,536.
    pub roots: usize,
    /// Blocks that may be pinned, all owners together.
    pub pinned: Blocks,
    /// Events that wait to be taken. Zero: none are made.
    pub events: usize,
}

impl PrefixCacheSpec {
    /// A cache of up to `most` blocks: 16 roots, half of it for pins, no events.
    #[must_use]
    pub const fn new(most: Blocks) -> Self {
        PrefixCacheSpec { most, roots: 16, pinned: Blocks::new(most.count() / 2), events: 0 }
    }
}

/// Why the cache did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixCacheError {
    /// The pool has one already.
    #[error("the {pool} pool has a prefix cache already: clone its handle, or drop it first")]
    Second {
        /// Which pool.
        pool: &'static str,
    },
    /// No blocks or roots, or more than there is memory for.
    #[error(
        "a prefix cache of {blocks} and {roots} roots, and {events} events: at least one block and one root, and no more than there \
         is memory for"
    )]
    Size {
        /// What was asked.
        blocks: Blocks,
        /// What was asked.
        roots: usize,
        /// What was asked.
        events: usize,
    },
    /// All roots are taken.
    #[error("all {roots} roots are taken: `forget` one, or raise `PrefixCacheSpec::roots`")]
    Roots {
        /// How many there are.
        roots: usize,
    },
    /// The root is another cache's, or was forgotten.
    #[error("the root is of another cache, or was forgotten: ask this one's `root`")]
    Root,
    /// The model that wrote the blocks has ended.
    #[error("the cache is of a model that has ended: make a new one for the new model")]
    ModelEnded,
    /// The request is of another pool, or opened from another cache.
    #[error("the request is of another pool, or was opened from another cache")]
    ForeignTicket,
    /// A launch that writes the request's tokens is not covered by the proof.
    #[error("the fence does not cover the launches that write the request: wait for a later one")]
    InFlight,
    /// The request was opened from, or published behind, another root.
    #[error("the request's first blocks are cached behind another root: publish it behind that one")]
    OtherRoot,
    /// The request was opened on other tokens than those given.
    #[error("the request was opened on other tokens than these: block {block} differs")]
    OtherContent {
        /// Position in the request.
        block: usize,
    },
}

/// The cache of a pool. A handle: clone it, send it to whoever admits requests.
///
/// [The manual](crate::manual::requests) has a request from its prompt to the cache.
pub struct PrefixCache<K> {
    tree: Arc<Tree>,
    spec: PrefixCacheSpec,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for PrefixCache<K> {
    fn clone(&self) -> Self {
        PrefixCache { tree: self.tree.clone(), spec: self.spec, kind: PhantomData }
    }
}

/// What the cache did so far, and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PrefixCacheStats {
    /// Blocks in it.
    pub cached: Blocks,
    /// Of those, blocks that nothing else needs.
    pub reclaimable: Blocks,
    /// Full blocks of prompts that were found.
    pub hits: u64,
    /// Full blocks of prompts that were not.
    pub misses: u64,
    /// Blocks that made room.
    pub evicted: u64,
}

impl<K: Shareable> PrefixCache<K> {
    /// The cache of `pool`.
    ///
    /// # Errors
    /// [`PrefixCacheError::Second`] or [`PrefixCacheError::Size`].
    pub fn new(pool: &PoolHandle<K>, spec: PrefixCacheSpec) -> Result<Self, PrefixCacheError> {
        let core = pool.core().clone();
        let size = PrefixCacheError::Size { blocks: spec.most, roots: spec.roots, events: spec.events };
        // A block is cached once, so more than the pool's are never in use.
        let most = usize::try_from(spec.most.count()).unwrap_or(usize::MAX).min(core.most());
        if most == 0 || spec.roots == 0 || spec.roots > MOST_ROOTS {
            return Err(size);
        }
        let epoch = core.epoch();
        let tree = Arc::new(Tree::new(core.clone(), epoch, most, spec.roots, spec.events).ok_or(size)?);
        match core.set_cache(&tree) {
            true => Ok(PrefixCache { tree, spec, kind: PhantomData }),
            false => Err(PrefixCacheError::Second { pool: core.name }),
        }
    }

    /// The root of everything that `key` names. The same key gives the same root until it is forgotten.
    ///
    /// # Errors
    /// [`PrefixCacheError::Roots`].
    pub fn root(&self, key: &RootKey) -> Result<Root, PrefixCacheError> {
        let core = &self.tree.core;
        let (per_block, units) = (core.per_block.count(), core.block_units as u64);
        let digest = key.digest(K::NAME, K::Element::NAME, per_block, units);
        let known = self.tree.add_root(digest);
        let (number, run) = known.ok_or(PrefixCacheError::Roots { roots: self.spec.roots })?;
        Ok(Root { tree: core.id, number, run })
    }

    /// Makes all blocks of a root unreachable, at once: an adapter was changed, say. Requests that have them go on.
    ///
    /// # Errors
    /// [`PrefixCacheError::Root`].
    pub fn forget(&self, root: Root) -> Result<(), PrefixCacheError> {
        let is_ours = root.tree == self.tree.core.id && self.tree.forget(root.number);
        if is_ours { Ok(()) } else { Err(PrefixCacheError::Root) }
    }

    /// The cached blocks that a prompt starts with. A hit is whole blocks; give it all tokens but the last, whose logits are needed.
    ///
    /// # Errors
    /// [`PrefixCacheError::Root`] or [`PrefixCacheError::ModelEnded`]. A miss is a lease on no blocks.
    pub fn lookup(&self, content: &impl Contents) -> Result<PrefixLease<K>, PrefixCacheError> {
        self.check(content.root())?;
        let mut table = self.tree.core.table(0);
        table.reserve(content.tokens().len() / self.tree.per_block);
        match self.tree.lookup(content, |blocks| table.extend_from_slice(blocks)) {
            Some(at) => Ok(PrefixLease {
                // A lease on a root keeps nothing, but ends like the others.
                lease: Some(Lease { tree: self.tree.clone(), at }),
                table,
                kind: PhantomData,
            }),
            None => {
                self.tree.core.recycle(table);
                Err(PrefixCacheError::Root)
            }
        }
    }

    /// Moves the request's full blocks into the cache, with proof that they are in memory; the request goes on with a lease on
    /// them. Where the same content is cached already, the request gives its own block up for that one; set its page table row
    /// before the next launch to make use of it. Call it as often as blocks fill: it looks at the new ones only.
    ///
    /// Returns the tokens that are cached of this request now. Fewer than it has when a hole, or a cache without room, ends them.
    ///
    /// # Errors
    /// [`PrefixCacheError`]; nothing changed.
    pub fn publish(
        &self,
        ticket: &mut Ticket<K>,
        settled: &Settled,
        content: &impl Contents,
    ) -> Result<Tokens, PrefixCacheError> {
        self.check(content.root())?;
        let tree = &self.tree;
        let foreign = ticket.lease.as_ref().is_some_and(|lease| !Arc::ptr_eq(&lease.tree, tree));
        if foreign || !Arc::ptr_eq(ticket.core(), &tree.core) {
            return Err(PrefixCacheError::ForeignTicket);
        }
        if ticket.epoch() != tree.epoch {
            return Err(PrefixCacheError::ModelEnded);
        }
        ticket.written(settled).map_err(|InFlight(())| PrefixCacheError::InFlight)?;
        let tokens = ticket.tokens().count().min(content.tokens().len() as u64) as usize;
        let hole = ticket.first_hole().unwrap_or(usize::MAX);
        let full = (tokens / tree.per_block).min(hole);

        let mut guard = tree.lock();
        let state = &mut *guard;
        let root = state.root(content.root()).ok_or(PrefixCacheError::Root)?;
        let mut at = ticket.lease.as_ref().map_or(At { run: root, depth: 0, root }, |lease| lease.at);
        if at.root != root {
            return Err(PrefixCacheError::OtherRoot);
        }
        if !tree.ends_with(state, at, content) {
            return Err(PrefixCacheError::OtherContent { block: at.depth as usize - 1 });
        }
        if ticket.lease.is_none() {
            state.begin(at.run);
        }
        at = tree.publish(state, at, content, full, ticket.ids_mut());
        drop(guard);
        match &mut ticket.lease {
            Some(lease) => lease.at = at,
            none => *none = Some(Lease { tree: tree.clone(), at }),
        }
        Ok(Tokens::new(u64::from(at.depth) * tree.per_block as u64))
    }

    /// Evicts up to `count` blocks, those unused for longest first. Pools do it by themselves when they run dry.
    ///
    /// Returns how many went.
    pub fn evict(&self, count: Blocks) -> Blocks {
        let most = usize::try_from(count.count()).unwrap_or(usize::MAX);
        let mut left = most;
        if most > 0 {
            self.tree.evict(|blocks, _| {
                let taken = left.min(blocks.len());
                self.tree.core.release_all(&blocks[blocks.len() - taken..]);
                left -= taken;
                taken
            });
        }
        Blocks::new((most - left) as u64)
    }

    /// Grants `owner` a number of blocks that it may pin. What it pins already stays pinned.
    ///
    /// # Errors
    /// [`PinError::Granted`] when all budgets together are more than [`PrefixCacheSpec::pinned`].
    pub fn set_pin_budget(&self, owner: PinOwner, budget: Blocks) -> Result<(), PinError> {
        pins::grant(&mut self.tree.lock(), owner, budget, self.spec.pinned.count())
    }

    /// Keeps the blocks of a lease from eviction, within the owner's budget.
    ///
    /// # Errors
    /// [`PinError::OverBudget`].
    pub fn pin(&self, owner: PinOwner, lease: &PrefixLease<K>) -> Result<Pin, PinError> {
        Pin::new(&lease.lease().tree, lease.lease().at, owner)
    }

    /// Takes the events since the last call, oldest first. Returns how many were lost because nobody took them in time: ask for all
    /// that is there, then.
    pub fn events(&self, mut see: impl FnMut(CacheEvent)) -> u64 {
        loop {
            // Not under the lock: `see` may do anything.
            let event = self.tree.lock().events.as_mut().and_then(Events::take);
            match event {
                Some(event) => see(event),
                None => return self.tree.lock().events.as_mut().map_or(0, Events::lost),
            }
        }
    }

    /// What is in it.
    pub fn stats(&self) -> PrefixCacheStats {
        let state = self.tree.lock();
        let [cached, reclaimable] = [state.cached, state.idle].map(|blocks| Blocks::new(u64::from(blocks)));
        PrefixCacheStats { cached, reclaimable, hits: state.hits, misses: state.misses, evicted: state.evicted }
    }

    fn check(&self, root: Root) -> Result<(), PrefixCacheError> {
        if root.tree != self.tree.core.id {
            return Err(PrefixCacheError::Root);
        }
        if self.tree.epoch != self.tree.core.epoch() {
            return Err(PrefixCacheError::ModelEnded);
        }
        Ok(())
    }
}

impl<K: PoolKind> fmt::Debug for PrefixCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.tree.lock();
        write!(
            f,
            "{} prefix cache: {} of {} blocks, {} reclaimable",
            K::NAME,
            state.cached,
            self.spec.most.count(),
            state.idle
        )
    }
}

/// Blocks that a prompt starts with, kept for as long as this lives.
#[must_use = "dropping a lease lets its blocks be evicted"]
pub struct PrefixLease<K> {
    /// Gone when a request has it.
    lease: Option<Lease>,
    table: Vec<u32>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Shareable> PrefixLease<K> {
    fn lease(&self) -> &Lease {
        match &self.lease {
            Some(lease) => lease,
            None => unreachable!("only `open` takes it, and consumes this"),
        }
    }

    /// Tokens that need no prefill.
    pub fn tokens(&self) -> Tokens {
        Tokens::new(self.table.len() as u64 * self.lease().tree.per_block as u64)
    }

    /// Blocks it keeps.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.table.len() as u64)
    }

    /// A cached block that goes on as the prompt does, for some tokens but not for all: copy it into the request's next block
    /// ([`PoolView::copy_from`](super::PoolView::copy_from)), and those tokens need no prefill either.
    pub fn alike(&self, content: &impl Contents) -> Option<(BlockRef<K>, Tokens)> {
        let Lease { tree, at } = self.lease();
        let first = at.depth as usize * tree.per_block;
        let rest = content.tokens().get(first..)?;
        let (block, tokens) = tree.alike(*at, content.extra(at.depth as usize, tree.per_block), rest)?;
        Some((BlockRef::new(&tree.core, block), Tokens::new(tokens as u64)))
    }

    /// The same lease on the first `blocks` only: where a request needs more than blocks, and has it for fewer.
    pub fn shorten(&mut self, blocks: Blocks) {
        let keep = usize::try_from(blocks.count()).unwrap_or(usize::MAX);
        if keep < self.table.len() {
            self.table.truncate(keep);
            if let Some(lease) = &mut self.lease {
                lease.shorten(keep);
            }
        }
    }

    /// A request that starts with the blocks, with room for `most` tokens in its table.
    pub fn open(mut self, most: Tokens) -> Ticket<K> {
        let lease = self.lease.take();
        let table = std::mem::take(&mut self.table);
        match lease {
            Some(lease) => Ticket::on_lease(lease, table, most),
            None => unreachable!("only `open` takes it, and consumes this"),
        }
    }
}

impl<K> Drop for PrefixLease<K> {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            lease.tree.core.recycle(std::mem::take(&mut self.table));
        }
    }
}

impl<K: PoolKind> fmt::Debug for PrefixLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} prefix lease: {} blocks", K::NAME, self.table.len())
    }
}
