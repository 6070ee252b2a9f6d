//! The pool itself: its shape, its plan line, and growth by planned commits.

use std::{fmt, marker::PhantomData, sync::Arc};

use super::{
    AcquireBlocksError, BlockRef, PoolCore, PoolGate, PoolView, Quiet, Ticket,
    core::{Core, MOST, SharedCore},
    kind::PoolKind,
};
use crate::{
    backend::{AcquireError, Region},
    element::Element,
    layout::SizeError,
    line::{Ground, Lot, Lots, granted_blocks},
    owned::Keep,
    part::{Declare, Part, Survives},
    place::{Cx, Place},
    plan::{Amount, Demand},
    space::{Host, Space},
    units::{Blocks, Bytes, Overflow, Tokens},
};

/// The shape of a pool.
///
/// ```
/// use memtier::{Blocks, PoolSpec, Tokens};
///
/// // 16 tokens a block, 2 x 8 heads x 128 values a token and layer, 32 layers.
/// let spec = PoolSpec::fixed(Tokens::new(16), 16 * 2 * 8 * 128 * 32, Blocks::new(2048));
/// // The same, but anything from one sequence of 4096 tokens on will do, committed 256 blocks at a time.
/// let spec = PoolSpec { floor: Blocks::new(256), initial: Blocks::new(256), step: Blocks::new(256), ..spec };
/// assert_eq!(spec.most, Blocks::new(2048));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSpec {
    /// Tokens in one block.
    pub per_block: Tokens,
    /// Elements of one block, all layers together.
    pub block_elements: usize,
    /// Fewer blocks than this is a refusal: what one sequence of the advertised length needs.
    pub floor: Blocks,
    /// Blocks that are there when serving starts. Less than what the plan grants makes the pool growable.
    pub initial: Blocks,
    /// More blocks than this the configuration cannot use. The plan grants anything from `floor` to `most`.
    pub most: Blocks,
    /// Blocks in one planned commit.
    pub step: Blocks,
}

impl PoolSpec {
    /// A pool of exactly `blocks` blocks, all there from the start.
    pub const fn fixed(per_block: Tokens, block_elements: usize, blocks: Blocks) -> Self {
        PoolSpec { per_block, block_elements, floor: blocks, initial: blocks, most: blocks, step: Blocks::new(1) }
    }

    /// `count` states of [`RecurrentState`](super::RecurrentState) layers, or rings of [`ResidualKv`](super::ResidualKv), of
    /// `elements` elements each: one a sequence, and what snapshots and guesses take. A state is one block, however many tokens went into it.
    pub const fn states(elements: usize, count: Blocks) -> Self {
        // More tokens than any sequence has.
        PoolSpec::fixed(Tokens::new(1 << 40), elements, count)
    }

    fn block_bytes<K: PoolKind>(&self) -> Result<Bytes, SizeError> {
        let field = K::NAME;
        let PoolSpec { per_block, block_elements, step, most, .. } = *self;
        if per_block.is_zero() || block_elements == 0 || step.is_zero() || most.is_zero() {
            return Err(SizeError::Zero { field });
        }
        if most.count() > MOST {
            return Err(SizeError::TooMany { field, count: most.count(), most: MOST });
        }
        if !block_elements.is_multiple_of(K::Element::PER) {
            let per = K::Element::PER;
            return Err(SizeError::Ragged { field, columns: block_elements, per, element: K::Element::NAME });
        }
        let units = (block_elements / K::Element::PER) as u64;
        let bytes = Bytes::new(size_of::<<K::Element as Element>::Repr>() as u64).times(units);
        bytes.and_then(|bytes| bytes.times(most.count()).map(|_| bytes)).map_err(|_| SizeError::Overflow { field })
    }
}

/// Equal blocks in one slab, whose base address never changes. One block is one contiguous piece, all layers of it: growing,
/// copying, spilling or saving a block is one range.
pub struct BlockPool<K, S = Host> {
    core: SharedCore,
    region: Arc<Region>,
    spec: PoolSpec,
    /// Blocks that no commit added: these stay.
    initial: Blocks,
    block: Bytes,
    marker: PhantomData<fn() -> (K, S)>,
}

// SAFETY: the demand is the blocks' own size.
unsafe impl<K: PoolKind, S: Space> Declare for BlockPool<K, S> {
    type Spec = PoolSpec;
    type Priced = PoolSpec;
    const LABEL: &'static str = K::NAME;

    fn price(spec: &PoolSpec, add: &mut dyn FnMut(Demand)) -> Result<PoolSpec, SizeError> {
        let block = spec.block_bytes::<K>()?;
        let PoolSpec { floor, most, step, per_block: tokens, .. } = *spec;
        add(Demand::pool(K::NAME, S::NAME, Amount::Blocks { block, tokens, floor, most, step }));
        Ok(*spec)
    }

    fn first_commit(spec: &PoolSpec, lots: &mut Lots<'_>) -> Result<(), AcquireError> {
        let Some(lot) = lots.0.next() else { return Ok(()) };
        lot.region.grow(First::of(spec, lot).bytes, false)
    }
}

/// What of a pool is there from the start.
struct First {
    granted: Blocks,
    /// Blocks that later commits add.
    growable: u64,
    initial: Blocks,
    block: Bytes,
    bytes: Bytes,
}

impl First {
    fn of(spec: &PoolSpec, lot: &Lot) -> Self {
        let granted = granted_blocks(lot);
        let step = spec.step.count();
        let growable = granted.beyond(spec.initial).count() / step * step;
        // What no whole commit can add is there from the start.
        let initial = Blocks::new(granted.count() - growable);
        let block = lot.blocks.map_or(Bytes::ZERO, |grant| grant.block);
        First { granted, growable, initial, block, bytes: block.times(initial.count()).unwrap_or(Bytes::ZERO) }
    }
}

// SAFETY: views are borrowed from the pool, and its region is kept.
unsafe impl<K: PoolKind, S: Space> Part for BlockPool<K, S> {
    type Space = S;
    type View<'a, P: Place<Space = S>> = PoolView<'a, K, P>;
    type LoadView<'a, P: Place<Space = S>> = PoolView<'a, K, P>;
    type Kept = Self;

    fn carve(spec: PoolSpec, ground: &mut Ground) -> Self {
        let lot = ground.take();
        let First { granted, growable, initial, block, bytes } = First::of(&spec, &lot);
        let step = spec.step.count();
        // The check before the carve did it: nothing is left to fail.
        let there = if lot.region.grow(bytes, false).is_ok() { initial } else { Blocks::ZERO };
        let units = spec.block_elements / K::Element::PER;
        let core = Core::shared(K::NAME, spec.per_block, units, there, granted, growable / step);
        BlockPool { core, region: lot.region, spec, initial, block, marker: PhantomData }
    }

    fn view<P: Place<Space = S>>(&mut self, cx: &Cx<P>) -> PoolView<'_, K, P> {
        PoolView::new(self, cx.mark())
    }

    fn load_view<P: Place<Space = S>>(&mut self, cx: &Cx<P>) -> PoolView<'_, K, P> {
        PoolView::new(self, cx.mark())
    }

    fn kept(self) -> Self {
        self.core.end_epoch();
        self
    }

    fn keep(&self, keep: &mut Keep) {
        keep.region(&self.region);
    }

    fn gates(&self, visit: &mut dyn FnMut(&dyn PoolGate)) {
        visit(self);
    }
}

impl<K: PoolKind, S: Space> Survives for BlockPool<K, S> {
    fn is_what_was_priced(&self, priced: &PoolSpec) -> bool {
        self.spec == *priced
    }

    fn growth(&self) -> Bytes {
        self.step_bytes().times(self.core.commits_left()).unwrap_or(Bytes::MAX)
    }
}

impl<K, S> PoolGate for BlockPool<K, S> {
    fn core(&self) -> Option<PoolCore<'_>> {
        Some(PoolCore { core: &self.core, block: self.block })
    }

    fn give_back(&self, _quiet: &Quiet) -> Result<Bytes, AcquireError> {
        let blocks = self.core.give_back(self.spec.step, self.initial, |stay| {
            let stay = self.block.times(stay.count()).unwrap_or(Bytes::MAX);
            // SAFETY: the blocks past `stay` are free and nothing is in flight, says `_quiet`; under the pool's lock nobody
            // gets one, and the slabs of later launches end before them.
            unsafe { self.region.shrink(stay) }
        })?;
        Ok(self.block.times(blocks.count()).unwrap_or(Bytes::ZERO))
    }
}

impl<K, S> Drop for BlockPool<K, S> {
    fn drop(&mut self) {
        self.core.end_epoch();
    }
}

impl<K, S> BlockPool<K, S> {
    fn step_bytes(&self) -> Bytes {
        self.block.times(self.spec.step.count()).unwrap_or(Bytes::MAX)
    }

    pub(super) fn core(&self) -> &SharedCore {
        &self.core
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(super) fn block_bytes(&self) -> Bytes {
        self.block
    }
}

impl<K: PoolKind, S: Space> BlockPool<K, S> {
    /// A request without blocks, with room for `most` tokens in its table.
    pub fn open(&self, most: Tokens) -> Ticket<K> {
        self.handle().open(most)
    }

    /// The pool's name, for whoever admits requests while a step is open: clonable, `Send`, without addresses.
    pub fn handle(&self) -> PoolHandle<K> {
        PoolHandle { core: self.core.clone(), kind: PhantomData }
    }

    /// Blocks that a request can get now.
    pub fn free(&self) -> Blocks {
        self.core.free()
    }

    /// Blocks with memory behind them.
    pub fn committed(&self) -> Blocks {
        Blocks::new(u64::from(self.core.committed()))
    }

    /// Blocks that growth can reach.
    pub fn most(&self) -> Blocks {
        let growth = self.core.commits_left().saturating_mul(self.spec.step.count());
        Blocks::new(u64::from(self.core.committed()).saturating_add(growth))
    }

    /// Tokens in one block.
    pub fn per_block(&self) -> Tokens {
        self.spec.per_block
    }

    /// One block, taken by hand: what a cache or a store holds. Requests use tickets.
    ///
    /// # Errors
    /// [`AcquireBlocksError`]; nothing was taken.
    pub fn acquire(&self) -> Result<BlockRef<K>, AcquireBlocksError> {
        take_one(&self.core)
    }

    /// Takes one of the plan's commits, if there is one left.
    pub fn planned_commit(&self) -> Option<PlannedCommit<K>> {
        self.core.take_commit().then_some(PlannedCommit { pool: self.core.id, kind: PhantomData })
    }

    /// Grows by one planned commit: the only growth while serving (row j). Addresses do not change, so graphs stay good.
    ///
    /// # Errors
    /// [`GrowError`] with the commit, which is still good.
    pub fn grow(&self, commit: PlannedCommit<K>) -> Result<Blocks, GrowError<K>> {
        if commit.pool != self.core.id {
            return Err(GrowError { commit, cause: None });
        }
        let step = self.spec.step;
        let commit = |total: Blocks| match self.block.times(total.count()) {
            Ok(total) => self.region.grow(total, true).map_err(Some),
            Err(Overflow) => Err(None),
        };
        match self.core.grow(step, commit) {
            Ok(()) => Ok(step),
            Err(cause) => Err(GrowError { commit: PlannedCommit { pool: self.core.id, kind: PhantomData }, cause }),
        }
    }
}

/// The name of a pool: admits requests from any thread, also while a step is open. Holds no memory and gives no address.
pub struct PoolHandle<K> {
    core: SharedCore,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for PoolHandle<K> {
    fn clone(&self) -> Self {
        PoolHandle { core: self.core.clone(), kind: PhantomData }
    }
}

impl<K> PoolHandle<K> {
    pub(super) fn core(&self) -> &SharedCore {
        &self.core
    }
}

impl<K: PoolKind> PoolHandle<K> {
    /// A request without blocks, with room for `most` tokens in its table.
    pub fn open(&self, most: Tokens) -> Ticket<K> {
        Ticket::new(self.core.clone(), most)
    }

    /// Blocks that are free now.
    pub fn free(&self) -> Blocks {
        self.core.free()
    }

    /// Blocks that only the pool's [`PrefixCache`](super::PrefixCache) needs: a request that finds too few free gets these.
    pub fn reclaimable(&self) -> Blocks {
        self.core.reclaimable()
    }

    /// Blocks that a request can get now: what is free, and what the cache would give up for it.
    pub fn available(&self) -> Blocks {
        Blocks::new(self.core.free().count() + self.core.reclaimable().count())
    }

    /// One block, taken by hand.
    ///
    /// # Errors
    /// [`AcquireBlocksError`]; nothing was taken.
    pub fn acquire(&self) -> Result<BlockRef<K>, AcquireBlocksError> {
        take_one(&self.core)
    }
}

#[inline]
fn take_one<K: PoolKind>(core: &Core) -> Result<BlockRef<K>, AcquireBlocksError> {
    let mut taken = 0;
    core.acquire(None, 1, |ids| taken = ids[0])?;
    Ok(BlockRef::new(core, taken))
}

/// One unit of growth that the plan paid for. Only a plan makes them.
#[must_use = "a commit that is dropped is growth that the plan paid for and nobody gets"]
pub struct PlannedCommit<K> {
    pool: u64,
    kind: PhantomData<fn() -> K>,
}

/// The pool did not grow; the commit is still good.
#[derive(thiserror::Error)]
#[error("the pool did not grow: {}", .cause.as_ref().map_or("the commit was planned for another pool".to_owned(), ToString::to_string))]
pub struct GrowError<K> {
    /// To try again with.
    pub commit: PlannedCommit<K>,
    /// `None`: the commit was planned for another pool.
    pub cause: Option<AcquireError>,
}

impl<K> fmt::Debug for GrowError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowError").field("cause", &self.cause).finish_non_exhaustive()
    }
}
