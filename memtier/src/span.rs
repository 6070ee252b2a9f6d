//! Spans: borrowed addresses, and how kernels accept them.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut, Range},
};

use crate::{
    element::{Element, Plain, SameElement},
    place::{Fits, Mark, Place},
    record::Recorder,
    sealed::Sealed,
};

/// Read access to memory whose address does not change while `'a` lasts. Copy it freely.
///
/// `T` is the [`Element`], `P` says where the span was taken (see [`Place`]). There is no constructor: spans come from
/// storages, scratch frames and pools, which can keep the promise (row n).
pub struct StableSpan<'a, T: Element, P> {
    raw: RawSpan<T>,
    marker: PhantomData<(&'a (), fn(P) -> P)>,
}

impl<T: Element, P> Clone for StableSpan<'_, T, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Element, P> Copy for StableSpan<'_, T, P> {}

/// Write access to memory whose address does not change while `'a` lasts. The only one at its time: not `Copy`.
///
/// Pass `&mut span` as an output and `&span` as an input.
pub struct StableSpanMut<'a, T: Element, P> {
    raw: RawSpan<T>,
    marker: PhantomData<(&'a mut (), fn(P) -> P)>,
}

/// A view of memory that may move or be recycled. Good for host-side bookkeeping; no kernel takes it (row k), and there is
/// no way back to a [`StableSpan`] (row n).
pub struct DeviceSpan<'a, T: Element> {
    raw: RawSpan<T>,
    marker: PhantomData<&'a ()>,
}

impl<T: Element> Clone for DeviceSpan<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Element> Copy for DeviceSpan<'_, T> {}

impl<T: Element> DeviceSpan<'_, T> {
    /// The address, as a number for logs.
    pub fn addr(self) -> u64 {
        self.raw.addr
    }

    /// The number of stored units: elements, or blocks of a block type, or bytes of a [`Packed`](crate::Packed) tensor.
    pub fn len(self) -> usize {
        self.raw.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.raw.len == 0
    }
}

impl<'a, T: Element, P: Place> StableSpan<'a, T, P> {
    pub(crate) fn new(addr: u64, len: usize, meta: T::Meta, mark: Mark<P>) -> Self {
        StableSpan { raw: RawSpan { addr, len, stream: mark.stream, meta }, marker: PhantomData }
    }

    /// The number of stored units: elements, or blocks of a block type, or bytes of a [`Packed`](crate::Packed) tensor.
    pub fn len(self) -> usize {
        self.raw.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.raw.len == 0
    }

    /// What must be known besides the type: the format and shape of a [`Packed`](crate::Packed) tensor.
    pub fn meta(self) -> T::Meta {
        self.raw.meta
    }

    /// Forgets that the address is stable. There is no way back.
    pub fn widen(self) -> DeviceSpan<'a, T> {
        DeviceSpan { raw: self.raw, marker: PhantomData }
    }
}

impl<T: Element, P> StableSpan<'_, T, P> {
    /// For copies, which check the place themselves.
    pub(crate) fn raw(self) -> RawSpan<T> {
        self.raw
    }
}

// Bounds on methods, not on the impl block: a `Packed` tensor is then told why it has no rows to cut.
impl<T: Element, P: Place> StableSpan<'_, T, P> {
    /// The units of `range`, or `None` when it is not inside the span: the first rows of a batch, one expert's slice.
    pub fn range(self, range: Range<usize>) -> Option<Self>
    where
        T: Plain,
    {
        Some(StableSpan { raw: self.raw.range(range)?, marker: PhantomData })
    }

    /// The units before and from `at`, or `None` when it is past the end.
    pub fn split_at(self, at: usize) -> Option<(Self, Self)>
    where
        T: Plain,
    {
        Some((self.range(0..at)?, self.range(at..self.raw.len)?))
    }
}

impl<'a, T: Element, P> StableSpanMut<'a, T, P> {
    /// Gives writing up for as long as the span lasts.
    pub fn into_read(self) -> StableSpan<'a, T, P> {
        StableSpan { raw: self.raw, marker: PhantomData }
    }
}

impl<T: Element, P> StableSpanMut<'_, T, P> {
    pub(crate) fn new(addr: u64, len: usize, meta: T::Meta, mark: Mark<P>) -> Self {
        StableSpanMut { raw: RawSpan { addr, len, stream: mark.stream, meta }, marker: PhantomData }
    }

    /// The number of stored units: elements, or blocks of a block type, or bytes of a [`Packed`](crate::Packed) tensor.
    pub fn len(&self) -> usize {
        self.raw.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }

    /// What must be known besides the type: the format and shape of a [`Packed`](crate::Packed) tensor.
    pub fn meta(&self) -> T::Meta {
        self.raw.meta
    }

    /// A read view, for as long as nobody writes.
    pub fn read(&self) -> StableSpan<'_, T, P> {
        StableSpan { raw: self.raw, marker: PhantomData }
    }

    /// For copies, which check the place themselves.
    pub(crate) fn raw_mut(&mut self) -> RawSpan<T> {
        self.raw
    }

    /// A write view for a shorter time.
    pub fn reborrow(&mut self) -> StableSpanMut<'_, T, P> {
        StableSpanMut { raw: self.raw, marker: PhantomData }
    }

    /// What a kernel wrapper gets of an output, which is `&mut impl Output<f32, P>` in its signature (see [`Output`]).
    #[doc(hidden)]
    pub fn output<U: Element, Q: Place>(&mut self, _on: &Recorder<Q>) -> RawSpan<U>
    where
        T: SameElement<U>,
        P: Fits<Q>,
    {
        self.raw.cast()
    }
}

impl<T: Element, P> StableSpanMut<'_, T, P> {
    /// The units of `range`, for a shorter time; `None` when it is not inside the span.
    pub fn range(&mut self, range: Range<usize>) -> Option<StableSpanMut<'_, T, P>>
    where
        T: Plain,
    {
        Some(StableSpanMut { raw: self.raw.range(range)?, marker: PhantomData })
    }

    /// Two disjoint write views, like `slice::split_at_mut`. `None` when `at` is past the end.
    pub fn split_at(self, at: usize) -> Option<(Self, Self)>
    where
        T: Plain,
    {
        let (head, tail) = (self.raw.range(0..at)?, self.raw.range(at..self.raw.len)?);
        Some((StableSpanMut { raw: head, marker: PhantomData }, StableSpanMut { raw: tail, marker: PhantomData }))
    }
}

// ------------------------------------------------------------------------------------------- what the host cannot do

/// Never implemented: says what to do instead of looking into a span. Without the impls below, the compiler would say that a span
/// cannot be indexed, and no more.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the host does not look into a span",
    label = "an address of the device, where launches may be in flight",
    note = "copy it out or in, in stream order: `step.on.read(&view.field, &mut values)`, `step.on.write(&mut view.field, &values)`",
    note = "on the CPU an operation gets slices: `on.host_op((output::<f32, _, _>(&mut view.field),), |(out,)| ..)`; a part of a span is \
            `span.range(0..8)`"
)]
pub trait OnHost {
    /// Nothing is known of it, so what is done with it is no second error.
    #[doc(hidden)]
    type One;
    #[doc(hidden)]
    fn stand_in<R>(self) -> R;
}

macro_rules! never_on_the_host { ($($span:ident)*) => { $(
    #[doc(hidden)]
    impl<T: Element, P, I: OnHost> Index<I> for $span<'_, T, P> {
        type Output = I::One;

        fn index(&self, index: I) -> &I::One {
            index.stand_in()
        }
    }

    #[doc(hidden)]
    impl<T: Element, P, I: OnHost> IndexMut<I> for $span<'_, T, P> {
        fn index_mut(&mut self, index: I) -> &mut I::One {
            index.stand_in()
        }
    }
)* } }
never_on_the_host!(StableSpan StableSpanMut);

// ------------------------------------------------------------------------------------------- kernel arguments

/// What a launch gets of a span: an address without a lifetime. The launch (or the graph) keeps the promise from here, so
/// using it as an address is `unsafe`.
#[doc(hidden)]
pub struct RawSpan<T: Element> {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) stream: u32,
    pub(crate) meta: T::Meta,
}

impl<T: Element> Clone for RawSpan<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Element> Copy for RawSpan<T> {}

impl<T: Element> RawSpan<T> {
    /// The address, for a launch.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The number of stored units.
    pub fn units(&self) -> usize {
        self.len
    }

    /// The stream it may be used on.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// What must be known besides the type.
    pub fn meta(&self) -> T::Meta {
        self.meta
    }

    fn cast<U: Element>(self) -> RawSpan<U>
    where
        T: SameElement<U>,
    {
        RawSpan { addr: self.addr, len: self.len, stream: self.stream, meta: self.meta }
    }

    pub(crate) fn range(self, range: Range<usize>) -> Option<Self> {
        let Range { start, end } = range;
        let len = end.checked_sub(start).filter(|_| end <= self.len)?;
        Some(RawSpan { addr: self.addr + (start * size_of::<T::Repr>()) as u64, len, ..self })
    }
}

/// A kernel argument that is read: a [`StableSpan`], or `&` of a write view.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot read `{Self}`",
    label = "not a stable span of `{T}`",
    note = "kernels read a `StableSpan`, or `&view.field` of a write view: take it from `step.buffers`, from \
            `step.scratch.take(..)`, or from a pool",
    note = "a `DeviceSpan`, a raw pointer and a host slice carry no promise that the address stays valid"
)]
pub trait Input<T: Element, P: Place>: Sealed {
    #[doc(hidden)]
    fn input(self) -> RawSpan<T>;
}

impl<T: Element, P> Sealed for StableSpan<'_, T, P> {}
impl<T: Element, P> Sealed for &StableSpan<'_, T, P> {}
impl<T: Element, P> Sealed for StableSpanMut<'_, T, P> {}
impl<T: Element, P> Sealed for &StableSpanMut<'_, T, P> {}

// The element, the space and the capture of span and launch are separate bounds, so that each mismatch has its own
// sentence. Together they say that the span's `T` and `P` are the launch's. (Not a macro: rustc quotes these lines.)
impl<T: SameElement<U>, P: Fits<Q>, U: Element, Q: Place> Input<U, Q> for StableSpan<'_, T, P> {
    fn input(self) -> RawSpan<U> {
        self.raw.cast()
    }
}
impl<T: SameElement<U>, P: Fits<Q>, U: Element, Q: Place> Input<U, Q> for &StableSpan<'_, T, P> {
    fn input(self) -> RawSpan<U> {
        self.raw.cast()
    }
}
impl<T: SameElement<U>, P: Fits<Q>, U: Element, Q: Place> Input<U, Q> for &StableSpanMut<'_, T, P> {
    fn input(self) -> RawSpan<U> {
        self.raw.cast()
    }
}
impl<T: SameElement<U>, P: Fits<Q>, U: Element, Q: Place> Input<U, Q> for StableSpanMut<'_, T, P> {
    fn input(self) -> RawSpan<U> {
        self.raw.cast()
    }
}

/// A kernel argument that is written: `out: &mut impl Output<f32, P>` in a wrapper's signature, [`StableSpanMut`] in a call. The `&mut`
/// is the wrapper's own, so that the caller's view is reborrowed and not moved.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot write `{Self}`",
    label = "not a write view",
    note = "kernels write a `StableSpanMut`: `&mut view.field` of `step.buffers`, a pool's block, or `step.scratch.take(..)`",
    note = "`ModelResident` storage is read-only from `serve` on; a `DeviceSpan`, a raw pointer and a host slice carry no promise \
            that the address stays valid"
)]
pub trait Output<T: Element, P: Place>: Sealed {
    /// It, with the launch's own element and place: what a wrapper's body works with.
    fn span(&mut self) -> StableSpanMut<'_, T, P>;
}

impl<T: SameElement<U>, P: Fits<Q>, U: Element, Q: Place> Output<U, Q> for StableSpanMut<'_, T, P> {
    fn span(&mut self) -> StableSpanMut<'_, U, Q> {
        StableSpanMut { raw: self.raw.cast(), marker: PhantomData }
    }
}
