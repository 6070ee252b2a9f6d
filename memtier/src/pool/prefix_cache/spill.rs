//! Two tiers: what the first cache is about to give up is kept in a second, larger and slower one.
//!
//! Both are whole caches over whole pools, each with its own books, so each conserves its own blocks and no count is read across
//! the two. A path is copied from its first missing block on, in stream order, and published in the second tier with proof; a
//! lookup that ends in the first goes on in the second, and what it finds there is copied into the request's own blocks.

mod error;
mod named;

pub use error::TierError;
pub(super) use named::Sent;

use super::{
    Contents, PrefixCache, PrefixCacheError, PrefixCacheStats, PrefixLease, Root, RootKey, Shareable, Ticket,
    content::{BlockContent, closed},
    tree::{Path, SpillFrom},
};
use crate::{
    place::{OutsideCapture, Place, Reached},
    pool::{AcquireBlocksError, PoolView},
    record::{Fence, Recorder, Settled},
    units::{Blocks, Tokens},
};

/// How much a [`TieredCache`] moves at a time. Its books are allocated when it is made: for each path, its tokens and about 24 bytes
/// a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSpec {
    /// Paths on their way to the second tier at a time.
    pub paths: usize,
    /// The longest of them; of longer ones the beginning is kept.
    pub longest: Tokens,
}

/// Two caches of one kind of blocks, a fast one and one for what does not fit into it.
///
/// The pools' blocks must have the same shape. The second pool is a part of the engine's bundle like the first.
pub struct TieredCache<K: Shareable> {
    hot: PrefixCache<K>,
    cold: PrefixCache<K>,
    moving: Vec<Moving<K>>,
    spare: Vec<Path>,
    /// Blocks of the longest path.
    longest: usize,
    /// Paths last used before are in the second tier, as far as they fit.
    from: SpillFrom,
    spilled: u64,
    restored: u64,
}

/// A path on its way.
struct Moving<K: Shareable> {
    /// Of the second pool: with a lease on what is there already.
    ticket: Ticket<K>,
    path: Path,
    root: Root,
    /// The block that was copied first.
    first: u32,
    blocks: u64,
    /// Whether all that fits is on its way.
    is_whole: bool,
    /// Whether a fence stands behind its copies.
    sent: bool,
}

/// What is in both tiers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TierStats {
    /// The first.
    pub hot: PrefixCacheStats,
    /// The second. Its hits and misses are those of spills, too.
    pub cold: PrefixCacheStats,
    /// Blocks on their way to the second.
    pub moving: Blocks,
    /// Blocks that were copied to the second and published there.
    pub spilled: u64,
    /// Blocks that were copied back.
    pub restored: u64,
}

/// The same content, behind the root of the other tier.
struct Behind<'c, C>(Root, &'c C);

impl<C> closed::Closed for Behind<'_, C> {}
impl<C: Contents> Contents for Behind<'_, C> {
    fn root(&self) -> Root {
        self.0
    }

    fn tokens(&self) -> &[u32] {
        self.1.tokens()
    }

    fn extra(&self, index: usize, per_block: usize) -> u128 {
        self.1.extra(index, per_block)
    }

    fn is_plain(&self) -> bool {
        self.1.is_plain()
    }
}

impl<K: Shareable> TieredCache<K> {
    /// `hot` before `cold`.
    ///
    /// # Errors
    /// [`TierError::Shape`], [`TierError::OneTier`] or [`TierError::Nothing`].
    pub fn new(hot: PrefixCache<K>, cold: PrefixCache<K>, spec: TierSpec) -> Result<Self, TierError> {
        let (first, second) = (&hot.tree.core, &cold.tree.core);
        if first.id == second.id {
            return Err(TierError::OneTier);
        }
        if (first.per_block, first.block_units) != (second.per_block, second.block_units) {
            return Err(TierError::Shape {
                hot: first.per_block,
                cold: second.per_block,
                hot_units: first.block_units,
                cold_units: second.block_units,
            });
        }
        let TierSpec { paths, longest } = spec;
        let most = hot.spec.most.count().min(cold.spec.most.count());
        let blocks = (longest.count() / first.per_block.count().max(1)).min(most) as usize;
        if paths == 0 || blocks == 0 {
            return Err(TierError::Nothing { paths, longest });
        }
        let spare = (0..paths).map(|_| Path::with_room(blocks, hot.tree.per_block)).collect();
        let moving = Vec::with_capacity(paths);
        Ok(TieredCache {
            hot,
            cold,
            moving,
            spare,
            longest: blocks,
            from: SpillFrom::default(),
            spilled: 0,
            restored: 0,
        })
    }

    /// The first tier: requests look up, open and publish there.
    pub fn hot(&self) -> &PrefixCache<K> {
        &self.hot
    }

    /// The second.
    pub fn cold(&self) -> &PrefixCache<K> {
        &self.cold
    }

    /// The root of `key` in the first tier, and the same in the second.
    ///
    /// # Errors
    /// [`PrefixCacheError::Roots`] of either: ask again when a root was forgotten.
    pub fn root(&self, key: &RootKey) -> Result<Root, PrefixCacheError> {
        let root = self.hot.root(key)?;
        self.cold.root(key)?;
        Ok(root)
    }

    /// Makes all blocks of a root of the first tier unreachable, in both.
    ///
    /// # Errors
    /// [`PrefixCacheError::Root`].
    pub fn forget(&mut self, root: Root) -> Result<(), PrefixCacheError> {
        let digest = self.hot.root_digest(root)?;
        self.hot.forget(root)?;
        let Some(cold) = self.cold.root_named(digest) else { return Ok(()) };
        // What is on its way goes with it.
        while let Some(index) = self.moving.iter().position(|moving| moving.root == cold) {
            self.stop(index);
        }
        self.cold.forget(cold)
    }

    /// The blocks that a prompt starts with in the first tier. [`restore`](TieredCache::restore) goes on from there.
    ///
    /// # Errors
    /// [`PrefixCacheError`].
    pub fn lookup(&self, content: &impl Contents) -> Result<PrefixLease<K>, PrefixCacheError> {
        self.hot.lookup(content)
    }

    /// How many blocks of a prompt the second tier has, from the first on: what a restore would find, for whoever decides.
    ///
    /// # Errors
    /// [`PrefixCacheError`].
    pub fn found_cold(&self, content: &impl Contents) -> Result<Blocks, PrefixCacheError> {
        Ok(self.lookup_cold(content)?.map_or(Blocks::ZERO, |lease| lease.blocks()))
    }

    /// The blocks that a prompt starts with in the second tier.
    pub(super) fn lookup_cold(&self, content: &impl Contents) -> Result<Option<PrefixLease<K>>, PrefixCacheError> {
        let root = self.cold.root_named(self.hot.root_digest(content.root())?);
        root.map(|root| self.cold.lookup(&Behind(root, content))).transpose()
    }

    /// Copies up to `most` blocks of the paths that the first tier would give up next into the second, in stream order. Blocks that
    /// are there already are not copied. A path is copied from its beginning and given up from its end: with `most` at least the longest path,
    /// the one that goes next is whole. Tell of the step's fence with [`sent`](TieredCache::sent), and let
    /// [`settle`](TieredCache::settle) publish them; until then the first tier's pool cannot take those blocks back.
    ///
    /// Returns how many blocks are on their way because of it. Fewer than `most` when nothing is left to spill, when the second tier has
    /// no room that is not in use, or when what is on its way must be settled first.
    ///
    /// # Errors
    /// [`TierError`]; what was launched before stays on its way.
    pub fn spill<P, H, C>(
        &mut self,
        on: &Recorder<P>,
        first: &PoolView<'_, K, H>,
        second: &mut PoolView<'_, K, C>,
        most: Blocks,
    ) -> Result<Blocks, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        self.check_views(first, second)?;
        let mut copied = 0;
        while copied < most.count() {
            match self.spill_one(on, first, second, most.count() - copied)? {
                Some(blocks) => copied += blocks,
                None => break,
            }
        }
        Ok(Blocks::new(copied))
    }

    /// The next path, and how many of its blocks were copied. `None`: not now.
    fn spill_one<P, H, C>(
        &mut self,
        on: &Recorder<P>,
        first: &PoolView<'_, K, H>,
        second: &mut PoolView<'_, K, C>,
        most: u64,
    ) -> Result<Option<u64>, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        // The rest of a path goes after its beginning is published.
        if self.moving.iter().any(|moving| !moving.is_whole) {
            return Ok(None);
        }
        let Some(mut path) = self.spare.pop() else { return Ok(None) };
        let Some(next) = self.hot.tree.coldest(&mut self.from, self.longest, &mut path) else {
            self.spare.push(path);
            return Ok(None);
        };
        let copied = self.copy_path(on, first, second, &path, most);
        // The launches keep the memory from here on.
        path.blocks.drain(..).for_each(|block| self.hot.tree.core.release(block));
        if let Ok(Copied::Some { is_whole: true, .. } | Copied::Skip) = copied {
            self.from = next;
        }
        self.send(path, copied)
    }

    /// Notes what is on its way, and how many blocks. `None`: not now.
    fn send(&mut self, path: Path, copied: Result<Copied<K>, TierError>) -> Result<Option<u64>, TierError> {
        match copied {
            Ok(Copied::Some { ticket, root, first, blocks, is_whole }) => {
                self.moving.push(Moving { ticket, path, root, first, blocks, is_whole, sent: false });
                Ok(Some(blocks))
            }
            nothing => {
                self.spare.push(path);
                nothing.map(|why| matches!(why, Copied::Skip).then_some(0))
            }
        }
    }

    fn copy_path<P, H, C>(
        &self,
        on: &Recorder<P>,
        first: &PoolView<'_, K, H>,
        second: &mut PoolView<'_, K, C>,
        path: &Path,
        most: u64,
    ) -> Result<Copied<K>, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        let Some(root) = path.root.and_then(|digest| self.cold.root_named(digest)) else { return Ok(Copied::Skip) };
        let lease = self.cold.lookup(&BlockContent { root, tokens: &path.tokens, extras: &path.extras })?;
        let held = lease.blocks().count() as usize;
        let Some(block) = path.blocks.get(held).copied() else { return Ok(Copied::Skip) };
        if self.moving.iter().any(|moving| moving.first == block) {
            // Another path with the same beginning takes it there.
            return Ok(Copied::Wait);
        }
        let missing = (path.blocks.len() - held) as u64;
        let reach = missing.min(self.cold_room(second.committed()));
        if reach < missing && !self.moving.is_empty() {
            return Ok(Copied::Wait);
        }
        if reach == 0 {
            return Ok(Copied::Skip);
        }
        let blocks = reach.min(most);
        let mut ticket = lease.open(Tokens::new(path.tokens.len() as u64));
        match ticket.push(Blocks::new(blocks)) {
            Ok(()) => {}
            // Somebody else has them, or a launch.
            Err(AcquireBlocksError::Full { .. }) => return Ok(Copied::Wait),
            Err(error) => return Err(error.into()),
        }
        for (index, block) in path.blocks.iter().enumerate().skip(held).take(blocks as usize) {
            on.copy_across(&mut second.block_mut(&mut ticket, index)?, first.span(*block))?;
        }
        Ok(Copied::Some { ticket, root, first: block, blocks, is_whole: blocks == reach })
    }

    /// Blocks that the second tier can give to a path whose beginning is leased.
    fn cold_room(&self, committed: Blocks) -> u64 {
        let PrefixCacheStats { cached, reclaimable, .. } = self.cold.stats();
        let used = cached.count() - reclaimable.count() + self.moving_blocks();
        self.cold.spec.most.count().min(committed.count()).saturating_sub(used)
    }

    fn moving_blocks(&self) -> u64 {
        self.moving.iter().map(|moving| moving.blocks).sum()
    }

    /// The copies since the last call were launched in the step that ends with this fence.
    ///
    /// # Errors
    /// [`TierError::Advance`] for the fence of another stream, or of an earlier step.
    pub fn sent(&mut self, fence: &Fence) -> Result<(), TierError> {
        let per_block = self.cold.per_block().count();
        for moving in self.moving.iter_mut().filter(|moving| !moving.sent) {
            moving.ticket.advance(Tokens::new(moving.blocks * per_block), fence)?;
            moving.sent = true;
        }
        Ok(())
    }

    /// Publishes what is in the second tier by this proof. Copies that it does not cover stay on their way.
    ///
    /// Returns how many blocks.
    ///
    /// # Errors
    /// [`TierError::Cache`]; the path whose publication failed is not moved, the others are.
    pub fn settle(&mut self, settled: &Settled) -> Result<Blocks, TierError> {
        let per_block = self.cold.per_block().count();
        let (mut published, mut result, mut index) = (0, Ok(()), 0);
        // In order: what was unused for longest goes first there, too.
        while let Some(moving) = self.moving.get_mut(index) {
            if !moving.sent {
                index += 1;
                continue;
            }
            let before = (moving.ticket.tokens().count() / per_block).saturating_sub(moving.blocks);
            let content = BlockContent { root: moving.root, tokens: &moving.path.tokens, extras: &moving.path.extras };
            match self.cold.publish(&mut moving.ticket, settled, &content) {
                Err(PrefixCacheError::InFlight) => {
                    index += 1;
                    continue;
                }
                Ok(tokens) => published += (tokens.count() / per_block).saturating_sub(before),
                Err(error) => result = result.and(Err(error.into())),
            }
            self.stop(index);
        }
        self.spilled += published;
        result.map(|()| Blocks::new(published))
    }

    fn stop(&mut self, index: usize) {
        self.spare.push(self.moving.remove(index).path);
    }

    /// Goes on in the second tier where the request's blocks of the first end: extends the request and copies what is found, in stream
    /// order, so later launches of the step may read it. When the step has ended, [`advance`](Ticket::advance) the request by what this
    /// returns, and publish it as usual.
    ///
    /// # Errors
    /// [`TierError`]; the request has the blocks that it had.
    pub fn restore<P, H, C>(
        &mut self,
        on: &Recorder<P>,
        first: &mut PoolView<'_, K, H>,
        second: &PoolView<'_, K, C>,
        ticket: &mut Ticket<K>,
        content: &impl Contents,
    ) -> Result<Tokens, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        self.check_views(first, second)?;
        let per_block = self.hot.per_block().count();
        let tokens = ticket.tokens();
        if !tokens.count().is_multiple_of(per_block) || !first.is_of(ticket.core()) {
            return Err(TierError::Ragged { tokens });
        }
        let Some(lease) = self.lookup_cold(content)? else { return Ok(Tokens::ZERO) };
        let start = (tokens.count() / per_block) as usize;
        let found = lease.table.get(start..).unwrap_or_default();
        let more = Tokens::new(found.len() as u64 * per_block);
        let before = Blocks::new(ticket.capacity().count() / per_block);
        ticket.extend(more)?;
        let mut copy = || {
            for (index, block) in found.iter().enumerate() {
                on.copy_across(&mut first.block_mut(ticket, start + index)?, second.span(*block))?;
            }
            Ok(())
        };
        // A path that was in use counts as used now, when the lease goes. The launches keep its memory.
        match copy() {
            Ok(()) => {
                self.restored += found.len() as u64;
                Ok(more)
            }
            Err(error) => {
                ticket.truncate(before);
                Err(error)
            }
        }
    }

    /// What is in both tiers.
    pub fn stats(&self) -> TierStats {
        TierStats {
            hot: self.hot.stats(),
            cold: self.cold.stats(),
            moving: Blocks::new(self.moving_blocks()),
            spilled: self.spilled,
            restored: self.restored,
        }
    }

    fn check_views<H: Place, C: Place>(
        &self,
        first: &PoolView<'_, K, H>,
        second: &PoolView<'_, K, C>,
    ) -> Result<(), TierError> {
        if !first.is_of(&self.hot.tree.core) {
            return Err(TierError::ForeignPool { tier: "first" });
        }
        if !second.is_of(&self.cold.tree.core) {
            return Err(TierError::ForeignPool { tier: "second" });
        }
        Ok(())
    }
}

/// What came of a path.
enum Copied<K: Shareable> {
    /// Some of its blocks are on their way.
    Some { ticket: Ticket<K>, root: Root, first: u32, blocks: u64, is_whole: bool },
    /// There is nothing to copy, or nowhere to.
    Skip,
    /// Not before something is settled.
    Wait,
}

impl<K: Shareable> std::fmt::Debug for TieredCache<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} before {:?}, {} blocks on their way", self.hot, self.cold, self.moving_blocks())
    }
}
