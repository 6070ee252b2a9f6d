//! Slabs: all blocks of a pool, as a kernel argument.

use std::{marker::PhantomData, ptr, slice};

use super::{BlockPool, core::SharedCore, kind::PoolKind};
use crate::{
    element::Element,
    place::{Fits, Mark, Place},
    record::{HostArg, Recorder},
    sealed::Sealed,
};

/// All committed blocks of a pool, for reading.
pub struct Slab<'a, K: PoolKind, P: Place> {
    pool: &'a BlockPool<K, P::Space>,
    mark: Mark<P>,
}

/// All committed blocks of a pool, for writing. The only one at its time.
pub struct SlabMut<'a, K: PoolKind, P: Place> {
    pool: &'a BlockPool<K, P::Space>,
    mark: Mark<P>,
    exclusive: PhantomData<&'a mut ()>,
}

/// What the body of a CPU operation sees of a [`Slab`].
#[derive(Clone, Copy, Debug)]
pub struct SlabSlice<'x, R> {
    /// Units of the blocks that are committed now, one block after the other.
    pub units: &'x [R],
    /// Units in one block.
    pub block_units: usize,
    /// Tokens in one block: where in it a position lies.
    pub block_tokens: usize,
    /// The pool's id: a page table of another pool must not be used with it.
    pub pool: u64,
}

/// What the body of a CPU operation sees of a [`SlabMut`].
#[derive(Debug)]
pub struct SlabSliceMut<'x, R> {
    /// Units of the blocks that are committed now, one block after the other.
    pub units: &'x mut [R],
    /// Units in one block.
    pub block_units: usize,
    /// Tokens in one block: where in it a position lies.
    pub block_tokens: usize,
    /// The pool's id: a page table of another pool must not be used with it.
    pub pool: u64,
}

/// What a launch keeps of a slab: its length is looked at when the launch runs.
#[doc(hidden)]
#[derive(Clone)]
pub struct RawSlab {
    base: u64,
    core: SharedCore,
    stream: u32,
}

impl RawSlab {
    fn units(&self) -> usize {
        self.core.committed() as usize * self.core.block_units
    }

    /// The address of block 0.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The stream it may be used on.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Units in one block.
    pub fn block_units(&self) -> usize {
        self.core.block_units
    }

    /// Tokens in one block.
    pub fn block_tokens(&self) -> usize {
        usize::try_from(self.core.per_block.count()).unwrap_or(usize::MAX)
    }

    /// The pool's id: a page table of another pool must not be used with it.
    pub fn pool(&self) -> u64 {
        self.core.id
    }
}

impl<'a, K: PoolKind, P: Place> Slab<'a, K, P> {
    pub(super) fn new(pool: &'a BlockPool<K, P::Space>, mark: Mark<P>) -> Self {
        Slab { pool, mark }
    }

    /// What a launch wrapper keeps of it.
    #[doc(hidden)]
    pub fn raw(&self) -> RawSlab {
        RawSlab { base: self.pool.region().base(), core: self.pool.core().clone(), stream: self.mark.stream }
    }

    /// The pool's id: a page table of another pool must not be used with it.
    pub fn pool(&self) -> u64 {
        self.pool.core().id
    }
}

impl<'a, K: PoolKind, P: Place> SlabMut<'a, K, P> {
    pub(super) fn new(pool: &'a BlockPool<K, P::Space>, mark: Mark<P>) -> Self {
        SlabMut { pool, mark, exclusive: PhantomData }
    }

    /// What a launch wrapper keeps of it.
    #[doc(hidden)]
    pub fn raw(&mut self) -> RawSlab {
        RawSlab { base: self.pool.region().base(), core: self.pool.core().clone(), stream: self.mark.stream }
    }

    /// The pool's id: a page table of another pool must not be used with it.
    pub fn pool(&self) -> u64 {
        self.pool.core().id
    }
}

impl<K: PoolKind, P: Place> Sealed for &Slab<'_, K, P> {}
impl<K: PoolKind, P: Place> Sealed for &mut SlabMut<'_, K, P> {}

impl<K: PoolKind, Q: Fits<P>, P: Place> HostArg<P> for &Slab<'_, K, Q> {
    type Raw = RawSlab;
    type Slice<'x> = SlabSlice<'x, <K::Element as Element>::Repr>;

    fn into_raw(self, _on: &Recorder<P>) -> RawSlab {
        self.raw()
    }

    fn stream(raw: &RawSlab) -> u32 {
        raw.stream()
    }

    unsafe fn slice<'x>(raw: &'x RawSlab) -> Self::Slice<'x> {
        // SAFETY: by the caller; the length is what is committed at this moment, and a pool never shrinks under a step.
        let units = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(raw.base as usize), raw.units()) };
        SlabSlice { units, block_units: raw.core.block_units, block_tokens: raw.block_tokens(), pool: raw.core.id }
    }
}

impl<K: PoolKind, Q: Fits<P>, P: Place> HostArg<P> for &mut SlabMut<'_, K, Q> {
    type Raw = RawSlab;
    type Slice<'x> = SlabSliceMut<'x, <K::Element as Element>::Repr>;

    fn into_raw(self, _on: &Recorder<P>) -> RawSlab {
        self.raw()
    }

    fn stream(raw: &RawSlab) -> u32 {
        raw.stream()
    }

    unsafe fn slice<'x>(raw: &'x RawSlab) -> Self::Slice<'x> {
        let data = ptr::with_exposed_provenance_mut(raw.base as usize);
        // SAFETY: as for reading; the view was borrowed mutably, so nobody else has the blocks.
        let units = unsafe { slice::from_raw_parts_mut(data, raw.units()) };
        SlabSliceMut { units, block_units: raw.core.block_units, block_tokens: raw.block_tokens(), pool: raw.core.id }
    }
}
