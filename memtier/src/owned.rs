//! One field of a storage.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    backend::Region,
    element::Element,
    layout::Slot,
    place::{Cx, Place},
    span::{StableSpan, StableSpanMut},
    tier::Tier,
};

/// One array of `E`, owned by an arena of tier `T`. Not `Clone`; gives spans while it is borrowed, to a step, a load or a
/// capture.
pub struct Owned<E: Element, T> {
    /// Keeps the arena's memory, so that even a leaked or misplaced field never dangles.
    region: Arc<Region>,
    addr: u64,
    len: usize,
    meta: E::Meta,
    marker: PhantomData<fn() -> (E, T)>,
}

impl<E: Element, T> Owned<E, T> {
    pub(crate) fn new(region: Arc<Region>, addr: u64, len: usize, meta: E::Meta) -> Self {
        Owned { region, addr, len, meta, marker: PhantomData }
    }

    /// The number of stored units: elements, or blocks of a block type, or bytes of a packed tensor.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it has the size that `slot` asks for.
    #[doc(hidden)]
    pub fn has_shape_of(&self, slot: &Slot<E>) -> bool
    where
        E::Meta: PartialEq,
    {
        self.len == slot.len && self.meta == slot.meta
    }

    /// Its region, for a graph that bakes its address.
    pub(crate) fn keep(&self, keep: &mut Keep) {
        keep.region(&self.region);
    }
}

impl<E: Element, T: Tier> Owned<E, T> {
    pub(crate) fn span<P: Place<Space = T::Space>>(&self, cx: &Cx<P>) -> StableSpan<'_, E, P> {
        StableSpan::new(self.addr, self.len, self.meta, cx.mark())
    }

    pub(crate) fn span_mut<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> StableSpanMut<'_, E, P> {
        StableSpanMut::new(self.addr, self.len, self.meta, cx.mark())
    }
}

impl<E: Element, T> fmt::Debug for Owned<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned<{}>[{}]", E::NAME, self.len)
    }
}

/// Collects the regions that a graph keeps alive.
#[doc(hidden)]
#[derive(Default)]
pub struct Keep(pub(crate) Vec<Arc<Region>>);

impl Keep {
    pub(crate) fn region(&mut self, region: &Arc<Region>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, region)) {
            self.0.push(region.clone());
        }
    }
}
