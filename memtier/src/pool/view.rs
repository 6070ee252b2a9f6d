//! What a step gets of a pool.

use super::{
    AcquireBlocksError, BlockPool, BlockRef, PoolHandle, Shareable, Slab, SlabMut, Ticket, core::Core, kind::PoolKind,
};
use crate::{
    place::{Mark, OutsideCapture, Place},
    record::{LaunchError, Recorder},
    span::{StableSpan, StableSpanMut},
    units::{Blocks, Bytes, Tokens},
};
use std::sync::Arc;

/// A pool in a step: its slab for kernels that read block ids, and single blocks by ticket.
pub struct PoolView<'a, K: PoolKind, P: Place> {
    pool: &'a BlockPool<K, P::Space>,
    mark: Mark<P>,
}

impl<'a, K: PoolKind, P: Place> PoolView<'a, K, P> {
    pub(super) fn new(pool: &'a BlockPool<K, P::Space>, mark: Mark<P>) -> Self {
        PoolView { pool, mark }
    }

    /// The pool's name, for what a request does with it: open, extend, publish, retire.
    pub fn handle(&self) -> PoolHandle<K>
    where
        P: OutsideCapture,
    {
        self.pool.handle()
    }

    /// Tokens in one block.
    pub fn per_block(&self) -> Tokens {
        self.pool.per_block()
    }

    /// Blocks with memory behind them.
    pub fn committed(&self) -> Blocks {
        self.pool.committed()
    }

    /// All committed blocks, for a kernel that reads block ids from a page table. Its address outlives every request, so a
    /// graph may bake it; its length is looked at when the launch runs, so growth reaches a captured graph.
    pub fn slab(&self) -> Slab<'_, K, P> {
        Slab::new(self.pool, self.mark)
    }

    /// All committed blocks, for a kernel that writes some.
    pub fn slab_mut(&mut self) -> SlabMut<'_, K, P> {
        SlabMut::new(self.pool, self.mark)
    }

    fn locate(&self, ticket: &Ticket<K>, index: usize) -> Result<(u32, u64), BlockError> {
        if !Arc::ptr_eq(self.pool.core(), ticket.core()) {
            return Err(BlockError::ForeignTicket);
        }
        let ended = ticket.epoch() != self.pool.core().epoch();
        let id = ticket.id(index).filter(|_| !ended).ok_or(BlockError::Hole { index, ended })?;
        Ok((id, self.pool.region().base() + u64::from(id) * self.pool.block_bytes().count()))
    }

    /// Block `index` of a request, for reading. Borrows the pool and the ticket.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn block<'x>(&'x self, ticket: &'x Ticket<K>, index: usize) -> Result<StableSpan<'x, K::Element, P>, BlockError>
    where
        P: OutsideCapture,
    {
        let (id, addr) = self.locate(ticket, index)?;
        self.pool.core().touch(id, self.mark.clock, false);
        Ok(StableSpan::new(addr, self.pool.core().block_units, (), self.mark))
    }

    /// Block `index` of a request, for writing. A shared block is refused.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn block_mut<'x>(
        &'x mut self,
        ticket: &'x mut Ticket<K>,
        index: usize,
    ) -> Result<StableSpanMut<'x, K::Element, P>, BlockError>
    where
        P: OutsideCapture,
    {
        let id = self.writable(ticket, index)?;
        Ok(self.span_mut(id))
    }

    /// Blocks of several requests at once, for writing: `(ticket, index)` each. Different tickets cannot hold the same
    /// unshared block, so the spans are disjoint.
    ///
    /// # Errors
    /// [`BlockError`] of the first that cannot be written.
    pub fn blocks_mut<'x, const N: usize>(
        &'x mut self,
        requests: [(&'x mut Ticket<K>, usize); N],
    ) -> Result<[StableSpanMut<'x, K::Element, P>; N], BlockError>
    where
        P: OutsideCapture,
    {
        let mut ids = [0; N];
        for (id, (ticket, index)) in ids.iter_mut().zip(&requests) {
            *id = self.writable(ticket, *index)?;
        }
        Ok(ids.map(|id| self.span_mut(id)))
    }

    /// A block to read and another to write: copy-on-write is `copy` between the two.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn copy_pair<'x>(
        &'x mut self,
        from: (&'x Ticket<K>, usize),
        to: (&'x mut Ticket<K>, usize),
    ) -> Result<(StableSpan<'x, K::Element, P>, StableSpanMut<'x, K::Element, P>), BlockError>
    where
        P: OutsideCapture,
    {
        let id = self.writable(to.0, to.1)?;
        let (source, addr) = self.locate(from.0, from.1)?;
        self.pool.core().touch(source, self.mark.clock, false);
        // `to`'s block has one referent and `from` is another ticket, so the two are different blocks.
        Ok((StableSpan::new(addr, self.pool.core().block_units, (), self.mark), self.span_mut(id)))
    }

    /// Makes block `index` the request's own, before it is written: where it is shared it is copied into a new block, in stream order.
    /// Returns whether it was. Set the request's page table row afterwards.
    ///
    /// # Errors
    /// [`OwnError`]; the request is as it was.
    pub fn own(&mut self, on: &Recorder<P>, ticket: &mut Ticket<K>, index: usize) -> Result<bool, OwnError>
    where
        P: OutsideCapture,
        K: Shareable,
    {
        let (shared, addr) = self.locate(ticket, index)?;
        if !ticket.is_shared(index) {
            return Ok(false);
        }
        let core = self.pool.core();
        let mut own = 0;
        core.acquire(Some(ticket.epoch()), 1, |ids| own = ids[0])?;
        // Holds it until it is the request's: an error below gives it back.
        let own = BlockRef::<K>::new(core, own);
        core.touch(shared, self.mark.clock, false);
        let from = StableSpan::<K::Element, P>::new(addr, core.block_units, (), self.mark);
        on.copy(&mut self.span_mut(own.id()), from)?;
        ticket.own_from(index);
        ticket.replace(index, own.into_id());
        core.release(shared);
        Ok(true)
    }

    /// Copies a block of the pool's cache into block `index` of a request, in stream order: what
    /// [`PrefixLease::alike`](super::PrefixLease::alike) found.
    ///
    /// # Errors
    /// [`OwnError`]; nothing was copied.
    pub fn copy_from(
        &mut self,
        on: &Recorder<P>,
        from: &BlockRef<K>,
        ticket: &mut Ticket<K>,
        index: usize,
    ) -> Result<(), OwnError>
    where
        P: OutsideCapture,
    {
        if !from.is_of(self.pool.core()) {
            return Err(OwnError::Block(BlockError::ForeignTicket));
        }
        let to = self.writable(ticket, index)?;
        let from = self.span(from.id());
        Ok(on.copy(&mut self.span_mut(to), from)?)
    }

    /// A block by one of its referents, for reading: what [`PrefixCache::export`](super::PrefixCache::export) names.
    ///
    /// # Errors
    /// [`BlockError::ForeignTicket`].
    pub fn named<'x>(&'x self, block: &'x BlockRef<K>) -> Result<StableSpan<'x, K::Element, P>, BlockError>
    where
        P: OutsideCapture,
    {
        if !block.is_of(self.pool.core()) {
            return Err(BlockError::ForeignTicket);
        }
        Ok(self.span(block.id()))
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> Bytes {
        self.pool.block_bytes()
    }

    /// Whether it is a view of the pool with these books.
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(&raw const ***self.pool.core(), core)
    }

    /// A block that has a referent, for reading.
    pub(super) fn span<'x>(&self, id: u32) -> StableSpan<'x, K::Element, P> {
        self.pool.core().touch(id, self.mark.clock, false);
        let addr = self.pool.region().base() + u64::from(id) * self.pool.block_bytes().count();
        StableSpan::new(addr, self.pool.core().block_units, (), self.mark)
    }

    fn writable(&self, ticket: &Ticket<K>, index: usize) -> Result<u32, BlockError> {
        let (id, _) = self.locate(ticket, index)?;
        if ticket.is_shared(index) {
            // The cache's referent, and its lease.
            let referents = self.pool.core().referents(id).max(2);
            return Err(BlockError::Shared { index, referents });
        }
        Ok(id)
    }

    fn span_mut<'x>(&self, id: u32) -> StableSpanMut<'x, K::Element, P> {
        self.pool.core().touch(id, self.mark.clock, true);
        let addr = self.pool.region().base() + u64::from(id) * self.pool.block_bytes().count();
        StableSpanMut::new(addr, self.pool.core().block_units, (), self.mark)
    }
}

/// A block was not made a request's own.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnError {
    /// The request has no such block.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// There is no block to copy into.
    #[error(transparent)]
    Full(#[from] AcquireBlocksError),
    /// The copy was not launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A block has no address to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// There is no block at this position, or the request's model has ended.
    #[error("the request has no block {index}{}: `extend` it first", if *ended { " (its model has ended)" } else { "" })]
    Hole {
        /// The position.
        index: usize,
        /// Whether the model has ended.
        ended: bool,
    },
    /// It has other referents, so it cannot be written.
    #[error("block {index} is shared by {referents} referents and cannot be written: copy it into a block of its own")]
    Shared {
        /// The position.
        index: usize,
        /// How many there are.
        referents: u32,
    },
    /// The ticket is one of another pool of the same kind.
    #[error("the ticket is one of another pool of this kind: use the pool that opened it")]
    ForeignTicket,
}
