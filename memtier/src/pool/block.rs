//! One counted referent of a block.

use std::{fmt, marker::PhantomData, ptr::NonNull};

use super::{Shareable, core::Core, kind::PoolKind};

/// One counted referent of a block. Not `Clone`: [`share`](BlockRef::share) is the only way to have another (row o). The
/// block goes back to its pool when the last referent drops, on any thread, and when nothing in flight can reach it.
#[must_use = "dropping the last referent frees the block"]
pub struct BlockRef<K> {
    /// Counted in the block itself: see [`Owner`](super::core::Owner).
    core: NonNull<Core>,
    id: u32,
    kind: PhantomData<fn() -> K>,
}

impl<K: PoolKind> BlockRef<K> {
    /// Takes over one referent that the caller counted.
    #[inline]
    pub(super) fn new(core: &Core, id: u32) -> Self {
        BlockRef { core: NonNull::from(core), id, kind: PhantomData }
    }

    /// A second referent of the same block.
    pub fn share(&self) -> BlockRef<K>
    where
        K: Shareable,
    {
        self.core().share(self.id);
        BlockRef::new(self.core(), self.id)
    }

    /// How many referents the block has.
    pub fn referents(&self) -> u32 {
        self.core().referents(self.id)
    }

    /// The id in its pool, for logs and reports.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl<K> BlockRef<K> {
    /// Whether it is a block of the pool with these books.
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(self.core.as_ptr(), core)
    }

    /// Its id; the referent is the caller's.
    pub(super) fn into_id(self) -> u32 {
        std::mem::ManuallyDrop::new(self).id
    }

    #[inline]
    fn core(&self) -> &Core {
        // SAFETY: the books are not freed while a block has a referent, and this is one.
        unsafe { self.core.as_ref() }
    }
}

// SAFETY: a reference gives `&Core`, which is `Sync`, and releases its block through it, on any thread.
unsafe impl<K> Send for BlockRef<K> {}
// SAFETY: as above.
unsafe impl<K> Sync for BlockRef<K> {}

impl<K> Drop for BlockRef<K> {
    #[inline]
    fn drop(&mut self) {
        self.core().release(self.id);
    }
}

impl<K: PoolKind> fmt::Debug for BlockRef<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} block {}", K::NAME, self.id)
    }
}
