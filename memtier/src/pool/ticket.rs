//! Tickets: a request's blocks.

use std::{fmt, marker::PhantomData, ops::Range, sync::Arc};

use super::{
    AcquireBlocksError, BlockRef, Shareable, Written,
    core::{HOLE, SharedCore},
    kind::PoolKind,
    prefix_cache::Lease,
};
use crate::{
    record::{Fence, Lane, Settled},
    units::{Blocks, Tokens},
};

/// How many streams may write one request's blocks.
const STREAMS: usize = 4;

/// A request's blocks, in the order of its tokens.
///
/// `'static + Send`: keep it where the request is. Dropping it ends the request, on any thread and in any way (finished,
/// cancelled, disconnected, failed, panicked): its blocks go back when nothing in flight can reach them.
#[must_use = "dropping a ticket ends the request"]
pub struct Ticket<K: PoolKind> {
    core: SharedCore,
    /// Block ids; [`HOLE`] keeps the positions aligned after a middle eviction.
    table: Vec<u32>,
    /// What keeps the first blocks, which are the cache's. The others are the request's own referents.
    pub(super) lease: Option<Lease>,
    tokens: Tokens,
    /// The last step on each stream that wrote tokens.
    writes: [Option<(Arc<Lane>, u64)>; STREAMS],
    epoch: u64,
    kind: PhantomData<fn() -> K>,
}

impl<K: PoolKind> Ticket<K> {
    pub(super) fn new(core: SharedCore, most: Tokens) -> Self {
        let blocks = most.in_blocks_of(core.per_block).count();
        let table = core.table(usize::try_from(blocks).unwrap_or(0).min(super::core::MOST as usize));
        let epoch = core.epoch();
        let (lease, tokens, writes) = (None, Tokens::ZERO, Default::default());
        Ticket { core, table, lease, tokens, writes, epoch, kind: PhantomData }
    }

    /// A ticket whose blocks are the cache's.
    pub(super) fn on_lease(lease: Lease, mut table: Vec<u32>, most: Tokens) -> Self {
        let core = lease.tree.core.clone();
        let leased = table.len();
        let tokens = Tokens::new(core.per_block.count() * leased as u64);
        let blocks = most.in_blocks_of(core.per_block).count();
        let blocks = usize::try_from(blocks).unwrap_or(0).min(super::core::MOST as usize);
        table.reserve_exact(blocks.saturating_sub(leased));
        let epoch = lease.tree.epoch;
        let lease = (leased > 0).then_some(lease);
        Ticket { core, table, lease, tokens, writes: Default::default(), epoch, kind: PhantomData }
    }

    /// A ticket that starts with referents which the caller counted.
    pub(super) fn with_blocks(
        core: SharedCore,
        epoch: u64,
        most: Tokens,
        ids: impl Iterator<Item = u32>,
        tokens: Tokens,
    ) -> Self {
        let mut ticket = Ticket::new(core, most);
        ticket.table.extend(ids);
        (ticket.epoch, ticket.tokens) = (epoch, tokens);
        ticket
    }

    pub(super) fn core(&self) -> &SharedCore {
        &self.core
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn ids(&self) -> &[u32] {
        &self.table
    }

    /// The same, for whoever puts other blocks in their place: with a referent each, and the old ones' are the caller's.
    pub(super) fn ids_mut(&mut self) -> &mut [u32] {
        &mut self.table
    }

    /// Where the first hole is.
    pub(super) fn first_hole(&self) -> Option<usize> {
        // Mostly there is none; looking at all of them without stopping is done many at a time.
        let any = self.table.iter().fold(false, |any, id| any | (*id == HOLE));
        any.then(|| self.table.iter().position(|id| *id == HOLE)).flatten()
    }

    /// Names another block at `index`, whose referent the caller counted; the old one's is the caller's now.
    pub(super) fn replace(&mut self, index: usize, id: u32) {
        self.table[index] = id;
    }

    /// How many of its first blocks are the cache's.
    fn leased(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::blocks)
    }

    /// Whether somebody else may have block `index`, too: it must not be written.
    pub(super) fn is_shared(&self, index: usize) -> bool {
        self.id(index).is_some_and(|id| index < self.leased() || self.core.referents(id) != 1)
    }

    /// Makes the blocks from `index` on the request's own referents, if the cache has them.
    pub(super) fn own_from(&mut self, index: usize)
    where
        K: Shareable,
    {
        if index < self.leased() {
            self.table[index..self.leased()].iter().filter(|id| **id != HOLE).for_each(|id| self.core.share(*id));
            self.keep_leased(index);
        }
    }

    /// Keeps the lease on the first `keep` blocks only.
    fn keep_leased(&mut self, keep: usize) {
        if keep >= self.leased() {
            return;
        }
        match &mut self.lease {
            Some(lease) if keep > 0 => lease.shorten(keep),
            lease => *lease = None,
        }
    }

    /// The id of block `index`, unless it is a hole.
    pub(super) fn id(&self, index: usize) -> Option<u32> {
        self.table.get(index).copied().filter(|id| *id != HOLE)
    }

    /// Tokens whose values are written, or being written.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// Tokens of it that are in the prefix cache: found there, or published by it.
    pub fn cached(&self) -> Tokens {
        Tokens::new((self.leased() as u64).saturating_mul(self.core.per_block.count()))
    }

    /// Tokens that fit into the blocks it has.
    pub fn capacity(&self) -> Tokens {
        Tokens::new((self.table.len() as u64).saturating_mul(self.core.per_block.count()))
    }

    /// Blocks it has, holes not counted.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.table.iter().filter(|id| **id != HOLE).count() as u64)
    }

    /// A second referent of block `index`; `None` for a hole or past the end.
    pub fn share(&self, index: usize) -> Option<BlockRef<K>>
    where
        K: Shareable,
    {
        let id = self.id(index)?;
        self.core.share(id);
        Some(BlockRef::new(&self.core, id))
    }

    /// Makes room for `more` tokens after those it has: all the blocks or none. A request that holds more than it needs
    /// gets nothing and loses nothing. Allocates nothing while the table stays within what `open` was told.
    ///
    /// # Errors
    /// [`AcquireBlocksError`]; nothing was taken.
    pub fn extend(&mut self, more: Tokens) -> Result<(), AcquireBlocksError> {
        let tokens = self.tokens.plus(more).unwrap_or(Tokens::MAX);
        let held = Blocks::new(self.table.len() as u64);
        let missing = tokens.in_blocks_of(self.core.per_block).beyond(held);
        self.push(missing)
    }

    /// Takes `count` more blocks, all or none.
    ///
    /// # Errors
    /// [`AcquireBlocksError`]; nothing was taken.
    #[inline]
    pub fn push(&mut self, count: Blocks) -> Result<(), AcquireBlocksError> {
        if count.is_zero() {
            return Ok(());
        }
        let (core, table) = (&self.core, &mut self.table);
        let most = usize::try_from(count.count()).unwrap_or(usize::MAX);
        core.acquire(Some(self.epoch), most, |ids| {
            // Low blocks are at the end of the free list and come first here.
            let held = table.len();
            table.extend_from_slice(ids);
            table[held..].reverse();
        })
    }

    /// Starts behind `blocks` blocks that it never has: what is before a sliding window when the request starts behind a cached prefix.
    /// Their tokens count as written; nothing can be read of them. For a request without blocks.
    pub fn skip(&mut self, blocks: Blocks) {
        if self.table.is_empty() && self.tokens.is_zero() {
            let count = usize::try_from(blocks.count()).unwrap_or(usize::MAX).min(super::core::MOST as usize);
            self.table.resize(count, HOLE);
            self.tokens = self.capacity();
        }
    }

    /// Whether it has a block at `index`: not a hole, and not past the end.
    pub fn has(&self, index: usize) -> bool {
        self.id(index).is_some()
    }

    /// Gives up the blocks after the first `keep` of them: a rejected draft's tail. Tokens in them are gone.
    pub fn truncate(&mut self, keep: Blocks) {
        let keep = usize::try_from(keep.count()).unwrap_or(usize::MAX).min(self.table.len());
        let own = keep.max(self.leased());
        self.core.release_all(&self.table[own..]);
        self.table.truncate(keep);
        self.keep_leased(keep);
        self.tokens = self.tokens.min(self.capacity());
    }

    /// Gives up block `index` and leaves a hole: a middle eviction, or a block that left the window.
    ///
    /// A block that the cache has stays there, and is kept until the request ends; [`evict_range`](Self::evict_range) lets go of it.
    pub fn evict(&mut self, index: usize) {
        let own = index >= self.leased();
        if let Some(id) = self.table.get_mut(index).filter(|id| **id != HOLE) {
            let id = std::mem::replace(id, HOLE);
            if own {
                self.core.release(id);
            }
        }
    }

    /// Gives up blocks `blocks` and leaves holes: the middle of a sequence that goes on with its beginning and its latest tokens.
    /// Those that others have, the cache too, are theirs from then on. Returns how many it gave up.
    ///
    /// What the cache has of the request behind the hole stays in use by the request, and is no longer [`cached`](Self::cached)
    /// of it: nothing behind a hole is published.
    pub fn evict_range(&mut self, blocks: Range<usize>) -> Blocks
    where
        K: Shareable,
    {
        let blocks = blocks.start..blocks.end.min(self.table.len());
        let held = self.blocks();
        if blocks.clone().any(|index| self.has(index)) {
            self.own_from(blocks.start);
            blocks.for_each(|index| self.evict(index));
        }
        held.beyond(self.blocks())
    }

    /// Gives up every block that lies wholly before token `token`, and leaves holes: the release of a sliding window.
    pub fn evict_before(&mut self, token: Tokens) {
        let blocks = token.count() / self.core.per_block.count().max(1);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.table.len());
        // Blocks leave in order, so everything before the last hole is a hole already.
        for index in (0..blocks).rev() {
            if self.table[index] == HOLE {
                break;
            }
            self.evict(index);
        }
    }

    /// Says that the launches of the step behind `fence` write the next `more` tokens.
    ///
    /// The system checks what it can: the tokens fit into the blocks, which are this request's alone, the stream was handed the pool,
    /// and launches of that step could reach the blocks (through a page table row, or a span taken in that step or before). Fork a
    /// request after this, not between the step and this.
    ///
    /// # Errors
    /// [`AdvanceError`]; the ticket is as it was.
    pub fn advance(&mut self, more: Tokens, fence: &Fence) -> Result<(), AdvanceError> {
        let tokens = self.tokens.plus(more).ok().filter(|tokens| *tokens <= self.capacity());
        let tokens = tokens.ok_or(AdvanceError::BeyondBlocks { more, capacity: self.capacity() })?;
        if !self.core.knows(&fence.lane) {
            return Err(AdvanceError::ForeignFence);
        }
        let per_block = self.core.per_block.count().max(1);
        let written = (self.tokens.count() / per_block) as usize..tokens.count().div_ceil(per_block) as usize;
        if !more.is_zero() {
            for index in written {
                let reached = self.id(index).map_or(0, |id| self.core.reached(id));
                if reached == 0 || reached > fence.step {
                    return Err(AdvanceError::NotReached { block: index });
                }
                if index < self.leased() {
                    return Err(AdvanceError::Cached { block: index });
                }
                // What another one wrote there would count as this request's.
                if self.is_shared(index) {
                    return Err(AdvanceError::Shared { block: index });
                }
            }
        }
        let slot = self.writes.iter_mut().find(|slot| {
            slot.as_ref().is_none_or(|(lane, step)| Arc::ptr_eq(lane, &fence.lane) || lane.settled(*step))
        });
        let slot = slot.ok_or(AdvanceError::TooManyStreams { most: STREAMS })?;
        let step = match slot {
            Some((lane, step)) if Arc::ptr_eq(lane, &fence.lane) => (*step).max(fence.step),
            _ => fence.step,
        };
        *slot = Some((fence.lane.clone(), step));
        self.tokens = tokens;
        Ok(())
    }

    /// Another request with the same tokens so far: best of several answers, or a beam. Blocks are shared, the last one too,
    /// however full it is; the first that writes it [owns](super::PoolView::own) it first, by a copy.
    ///
    /// Allocates nothing where an ended request left a table of this size.
    pub fn fork(&self, most: Tokens) -> Ticket<K>
    where
        K: Shareable,
    {
        let room = most.max(self.capacity());
        let mut fork = Ticket::new(self.core.clone(), room);
        fork.table.extend_from_slice(&self.table);
        self.table[self.leased()..].iter().filter(|id| **id != HOLE).for_each(|id| self.core.share(*id));
        fork.lease = self.lease.as_ref().map(Lease::again);
        (fork.epoch, fork.tokens, fork.writes) = (self.epoch, self.tokens, self.writes.clone());
        fork
    }

    /// Takes `tokens` back: rejected draft tokens, whose values will be overwritten. Blocks stay.
    ///
    /// # Errors
    /// [`RewindError`] when they lie in a block that others refer to and a page table row names: the next launch through the row
    /// would write into a published prefix. Clear the row first; setting it again asks for a block of its own. The ticket is as
    /// it was.
    pub fn rewind(&mut self, tokens: Tokens) -> Result<(), RewindError> {
        let left = Tokens::new(self.tokens.count().saturating_sub(tokens.count()));
        let per_block = self.core.per_block.count().max(1);
        let rewritten = (left.count() / per_block) as usize..self.tokens.count().div_ceil(per_block) as usize;
        for index in rewritten {
            let Some(id) = self.id(index).filter(|id| self.core.is_pinned(*id)) else { continue };
            let referents = self.core.referents(id);
            if self.is_shared(index) {
                return Err(RewindError { block: index, referents });
            }
        }
        self.tokens = left;
        Ok(())
    }

    /// Proof that this request's tokens are in memory, from a fence behind the launches that write them (row r).
    ///
    /// # Errors
    /// [`InFlight`] when a launch that writes them is not covered and not done.
    pub fn written(&self, settled: &Settled) -> Result<Written<'_, K>, InFlight<()>> {
        let done = self
            .writes
            .iter()
            .flatten()
            .all(|(lane, step)| (Arc::ptr_eq(lane, &settled.lane) && *step <= settled.step) || lane.settled(*step));
        if done { Ok(Written::new(self)) } else { Err(InFlight(())) }
    }

    /// Ends the request and frees its blocks at once, although later launches (of other requests) are in flight: the fence
    /// proves that the ones which could reach its blocks are done. Dropping the ticket does the same, later.
    ///
    /// # Errors
    /// [`InFlight`] with the ticket, when a page table row names a block, or a launch that could reach one is not covered.
    #[expect(clippy::result_large_err, reason = "the request comes back, and nobody calls this in a hurry")]
    pub fn retire(self, settled: &Settled) -> Result<(), InFlight<Self>> {
        match self.table[self.leased()..].iter().all(|id| *id == HOLE || self.core.is_quiet(*id, settled)) {
            true => Ok(()),
            false => Err(InFlight(self)),
        }
    }
}

impl<K: PoolKind> Drop for Ticket<K> {
    fn drop(&mut self) {
        self.core.release_all(&self.table[self.leased()..]);
        if self.table.capacity() > 0 {
            self.core.recycle(std::mem::take(&mut self.table));
        }
    }
}

impl<K: PoolKind> fmt::Debug for Ticket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ticket: {} in {}", K::NAME, self.tokens, self.blocks())
    }
}

/// A ticket was not rewound. It is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "block {block} of the request is shared by {referents} referents and named by a page table row, so the next launch would write \
     its tokens again: clear the row, rewind, and make the block the request's own (`own`) before the row is set"
)]
pub struct RewindError {
    /// Position in the ticket's table.
    pub block: usize,
    /// How many there are.
    pub referents: u32,
}

/// A ticket did not advance. It is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdvanceError {
    /// More tokens than the blocks hold.
    #[error("{more} more do not fit into blocks for {capacity}: `extend` the ticket before the step")]
    BeyondBlocks {
        /// What was said to be written.
        more: Tokens,
        /// What the blocks hold.
        capacity: Tokens,
    },
    /// The fence is of a stream that was never handed this pool.
    #[error("the fence is of a stream that never saw this pool: use the fence of the step that wrote the tokens")]
    ForeignFence,
    /// No launch of the step could reach a block that is said to be written.
    #[error(
        "no launch up to that fence could reach block {block} of the request: set its page table row, or take its span, in \
         the step before"
    )]
    NotReached {
        /// Position in the ticket's table.
        block: usize,
    },
    /// The block is the cache's: nobody may have written it.
    #[error("block {block} is in the prefix cache and cannot have been written: `PoolView::own` it in the step before")]
    Cached {
        /// Position in the ticket's table.
        block: usize,
    },
    /// Somebody else has the block, too: a fork.
    #[error(
        "block {block} is shared with another request: `PoolView::own` it in the step that writes it, and fork after `advance`"
    )]
    Shared {
        /// Position in the ticket's table.
        block: usize,
    },
    /// Too many streams write one request at a time.
    #[error("more than {most} streams write this request at a time")]
    TooManyStreams {
        /// How many may.
        most: usize,
    },
}

/// The fence does not cover the launches that use this; `T` comes back.
#[derive(PartialEq, Eq, thiserror::Error)]
#[error("the fence does not cover the launches that use this: wait for a later one, or clear its page table row first")]
pub struct InFlight<T>(pub T);

impl<T> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}
