//! T3: block pools, the blocks that requests hold, page tables and published prefixes.
//!
//! The pool owns the memory. A [`BlockRef`] is a counted name, a [`Ticket`] is a request's positional table of them, and an
//! address needs the pool *and* the ticket, inside a step.

mod block;
mod core;
mod kind;
mod lock;
mod prefix;
mod prefix_cache;
mod slab;
mod spec;
mod sync;
mod table;
mod ticket;
mod view;

#[cfg(test)]
mod tests;

pub use block::BlockRef;
pub use kind::{GlobalKv, PoolKind, RecurrentState, ResidualKv, Shareable, SwaKv};
pub use prefix::{Prefix, Written};
pub use prefix_cache::{
    BlockContent, CacheEvent, CachedBlock, Content, Contents, Digest, Export, Extra, FoundState, KeptState, Pin,
    PinError, PinOwner, PrefixCache, PrefixCacheError, PrefixCacheSpec, PrefixCacheStats, PrefixLease, Root, RootKey,
    SnapshotSpec, SnapshotStats, Snapshots, TierError, TierSpec, TierStats, TieredCache, TieredSnapshots,
};
pub use slab::{Slab, SlabMut, SlabSlice, SlabSliceMut};
pub use spec::{BlockPool, GrowError, PlannedCommit, PoolHandle, PoolSpec};
pub use table::{BlockId, PageTable, PageTableView, RowError, TableShape, TableSlice, TableSpec, table};
pub use ticket::{AdvanceError, InFlight, RewindError, Ticket};
pub use view::{BlockError, OwnError, PoolView};

use std::sync::Arc;

use crate::{
    backend::{AcquireError, QueueError},
    record::Lane,
    units::{Blocks, Bytes},
};

/// What an engine asks of its pools and page tables.
#[doc(hidden)]
pub trait PoolGate {
    /// The books, of a pool.
    #[doc(hidden)]
    fn core(&self) -> Option<PoolCore<'_>> {
        None
    }
    /// Decommits what growth added and nobody uses.
    #[doc(hidden)]
    fn give_back(&self, _quiet: &Quiet) -> Result<Bytes, AcquireError> {
        Ok(Bytes::ZERO)
    }
    /// Makes what launches will read say nothing, where nobody has written anything.
    #[doc(hidden)]
    fn prepare(&self, _stream: StepStream<'_>) -> Result<(), QueueError> {
        Ok(())
    }
}

/// The stream of a step that begins. Only the engine makes one.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct StepStream<'l>(&'l Lane);

impl<'l> StepStream<'l> {
    pub(crate) fn new(lane: &'l Lane) -> Self {
        StepStream(lane)
    }
}

/// Proof that no launch is in flight and no step is open. Only the engine makes one.
#[doc(hidden)]
pub struct Quiet(());

impl Quiet {
    /// The caller holds the engine by `&mut` and has drained every stream.
    pub(crate) fn drained() -> Self {
        Quiet(())
    }
}

/// The books of a pool, for the engine.
#[doc(hidden)]
pub struct PoolCore<'p> {
    core: &'p core::Core,
    block: Bytes,
}

impl PoolCore<'_> {
    pub(crate) fn name(&self) -> &'static str {
        self.core.name
    }

    /// A stream is handed the pool's addresses.
    pub(crate) fn seen_by(&self, lane: &Arc<Lane>) {
        self.core.seen_by(lane);
    }

    /// Stops or resumes handing out blocks, and tells how many are out.
    pub(crate) fn close(&self, closed: bool) -> Blocks {
        self.core.close(closed)
    }

    pub(crate) fn block_bytes(&self) -> Bytes {
        self.block
    }

    pub(crate) fn free(&self) -> Blocks {
        self.core.free()
    }

    pub(crate) fn committed(&self) -> Blocks {
        Blocks::new(u64::from(self.core.committed()))
    }
}

/// A request got no blocks. Nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireBlocksError {
    /// Not enough blocks are free.
    #[error(
        "the {pool} pool has {free} free where a request wants {needed}: end or wait for a request, or grow by a planned commit"
    )]
    Full {
        /// Which pool.
        pool: &'static str,
        /// Blocks that are still needed.
        needed: Blocks,
        /// Blocks that are free.
        free: Blocks,
    },
    /// The request belongs to a model that has ended.
    #[error("the request on the {pool} pool belongs to a model that has ended: open a new one")]
    ModelEnded {
        /// Which pool.
        pool: &'static str,
    },
    /// The engine is draining.
    #[error("the {pool} pool is draining: no request gets blocks until the engine resumes or loads a model")]
    Draining {
        /// Which pool.
        pool: &'static str,
    },
}
