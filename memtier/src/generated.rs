//! What generated `unsafe impl`s are made of: methods of values that this crate makes.
//!
//! An author says where memtier is, with `crate = path`, or with `extern crate self as memtier`, both in safe code. What is found
//! there can be a module with the real traits beside helpers of its own. So nothing that matters in the body of an `unsafe impl` is
//! named by a path. A trait that is not ours may be implemented in any way; for ours the compiler compares signatures, so their
//! parameters are ours, whatever a path calls them. Everything is done by methods of those, and what the methods give back
//! decides the types of the fields that hold it, by value.
//!
//! A method call finds what is meant here if two rules are kept. A method takes the receiver that the body has (`&mut self` where
//! that is a `&mut`), and what its impl asks for, the receiver's own type promises; conditions stand on the method. Else a trait of the
//! author's with a method of the same name would be asked first.

use crate::{
    bundle::{LoadViewOf, PartOf, ViewOf},
    element::Element,
    engine::{Lend, Lent},
    layout::{Base, SizeError, Walk},
    line::{CarveError, Check},
    owned::{Keep, Owned},
    part::{Declare, Part},
    place::{Cx, Place},
    plan::Demand,
    pool::PoolGate,
    span::{StableSpan, StableSpanMut},
    storage::{Nested, NestedMut, NestedRef, SpaceOf, Storage},
    tier::Tier,
};

// ------------------------------------------------------------------------------------------------- `Storage`

impl<T> Walk<'_, T> {
    /// A field that the configuration has.
    pub fn present<L>(&mut self, layout: L) -> Option<L> {
        Some(layout)
    }

    /// A field that the configuration leaves out.
    pub fn absent<L>(&mut self) -> Option<L> {
        None
    }

    /// Every field has a place.
    pub fn done<L>(&mut self, layout: L) -> Result<L, SizeError> {
        Ok(layout)
    }
}

impl<T> Base<'_, T> {
    /// The same memory, for an array of storages.
    pub fn array<N: Storage>(&self, layouts: &[N::Layout]) -> Nested<N> {
        Nested::of(layouts.iter().map(|layout| self.nested(layout)))
    }
}

impl<P> Cx<P> {
    /// The read view of a field.
    pub fn span<'a, E: Element, T: Tier>(&self, own: &'a Owned<E, T>) -> StableSpan<'a, E, P>
    where
        P: Place<Space = T::Space>,
    {
        own.span(self)
    }

    /// The write view of a field.
    pub fn span_mut<'a, E: Element, T: Tier>(&self, own: &'a mut Owned<E, T>) -> StableSpanMut<'a, E, P>
    where
        P: Place<Space = T::Space>,
    {
        own.span_mut(self)
    }

    /// The read views of a nested storage.
    pub fn nested<'a, N: Storage>(&self, own: &'a N) -> N::Ref<'a, P>
    where
        P: Place<Space = SpaceOf<N>>,
    {
        own.view(self)
    }

    /// The write views of a nested storage.
    pub fn nested_mut<'a, N: Storage>(&self, own: &'a mut N) -> N::Mut<'a, P>
    where
        P: Place<Space = SpaceOf<N>>,
    {
        own.view_mut(self)
    }

    /// The read views of an array of storages.
    pub fn array<'a, N: Storage>(&self, own: &'a Nested<N>) -> NestedRef<'a, N, P>
    where
        P: Place<Space = SpaceOf<N>>,
    {
        own.view(self)
    }

    /// The write views of an array of storages.
    pub fn array_mut<'a, N: Storage>(&self, own: &'a mut Nested<N>) -> NestedMut<'a, N, P>
    where
        P: Place<Space = SpaceOf<N>>,
    {
        own.view_mut(self)
    }
}

impl Keep {
    /// A field.
    pub fn span<E: Element, T>(&mut self, own: &Owned<E, T>) {
        own.keep(self);
    }

    /// A nested storage.
    pub fn nested<N: Storage>(&mut self, own: &N) {
        own.keep(self);
    }

    /// An array of storages.
    pub fn array<N: Storage>(&mut self, own: &Nested<N>) {
        own.keep(self);
    }
}

// -------------------------------------------------------------------------------------------------- `Bundle`

/// Prices the parts of a bundle.
pub struct Prices<'p>(pub(crate) &'p mut dyn FnMut(Demand));

impl Prices<'_> {
    /// A part of this size.
    pub fn part<T: Declare>(&mut self, spec: &T::Spec) -> Result<(), SizeError> {
        T::price(spec, self.0).map(drop)
    }

    /// Every part has a price.
    pub fn done(&mut self) -> Result<(), SizeError> {
        Ok(())
    }
}

impl Check<'_> {
    /// Every line was looked at.
    pub fn done(&mut self) -> Result<(), CarveError> {
        Ok(())
    }
}

impl<P> Cx<P> {
    /// The view of the part that says where its bundle is.
    pub fn part<'a, T: Part>(&self, part: &'a mut T) -> T::View<'a, P>
    where
        P: Place<Space = T::Space>,
    {
        part.view(self)
    }

    /// The view of another part, where that is.
    pub fn part_of<'a, T: PartOf<P::Space>>(&self, part: &'a mut T) -> ViewOf<'a, T, P::Space, P>
    where
        P: Place,
    {
        const { read_where_it_is(T::READ_WHERE_IT_IS) };
        part.view(&<T as PartOf<P::Space>>::there(self))
    }

    /// What a loader gets of the part that says where its bundle is.
    pub fn load_part<'a, T: Part>(&self, part: &'a mut T) -> T::LoadView<'a, P>
    where
        P: Place<Space = T::Space>,
    {
        part.load_view(self)
    }

    /// What a loader gets of another part, where that is.
    pub fn load_part_of<'a, T: PartOf<P::Space>>(&self, part: &'a mut T) -> LoadViewOf<'a, T, P::Space, P>
    where
        P: Place,
    {
        const { read_where_it_is(T::READ_WHERE_IT_IS) };
        part.load_view(&<T as PartOf<P::Space>>::there(self))
    }
}

const fn read_where_it_is(is: bool) {
    match if is { Some(()) } else { None } {
        Some(()) => {}
        None => panic!("a page table is beside the device that reads it: give it `Cuda` memory"),
    }
}

impl Lend {
    /// A part, to be handed to one side.
    pub fn part<'s, T>(&self, part: &'s mut T) -> Lent<'s, T> {
        Lent::new(part, self)
    }
}

/// A model's end. Only the engine makes one.
pub struct Swap(pub(crate) ());

impl Swap {
    /// What is left of a part.
    pub fn part<T: Part>(&self, part: T) -> T::Kept {
        part.kept()
    }
}

impl Keep {
    /// A part.
    pub fn part<T: Part>(&mut self, part: &T) {
        part.keep(self);
    }
}

/// Visits every pool of a bundle.
pub struct Gates<'g>(pub(crate) &'g mut dyn FnMut(&dyn PoolGate));

impl Gates<'_> {
    /// Those of a part.
    pub fn part<T: Part>(&mut self, part: &T) {
        part.gates(self.0);
    }
}
