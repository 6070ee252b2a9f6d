//! Storages: structs of device arrays, as `#[tier(..)]` declares them.

use std::ops::{Index, IndexMut};

use crate::{
    layout::{self, Base, FieldInfo, SizeError, Walk},
    owned::Keep,
    place::{Cx, Place},
    space::Space,
    tier::Tier,
    units::Bytes,
};

/// A struct of device arrays: what [`#[tier(..)]`](crate::tier) turns a declaration into.
///
/// # Safety
///
/// Implemented by the macro only. The implementer promises that `lay_out` gives every field a slot of its own, that `build`
/// takes each field from its slot once, and that `view` and `view_mut` give each field's own span and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a storage nor another part of a bundle",
    label = "not a part",
    note = "parts are storages (structs with `#[tier(..)]`), `BlockPool`, `PageTable`, and `Option`, `Vec` and arrays of them",
    note = "a `Gone` stands where `ModelResident` storage was: that went with its model, `declare` it for the next one",
    note = "a `#[graph_captured]` struct is declared as a whole, with `declare_bundle`, and is no part of another: list its parts"
)]
pub unsafe trait Storage: Sized + Send + Sync + 'static {
    /// How long it lives, and in which space.
    type Tier: Tier;
    /// The numbers its shapes are made of.
    type Dims: Send + Sync + 'static;
    /// The place of each field.
    #[doc(hidden)]
    type Layout: Send + 'static;
    /// One read view per field.
    type Ref<'a, P: Place<Space = SpaceOf<Self>>>: Copy + Send;
    /// One write view per field: disjoint, so a launch can read some and write others.
    type Mut<'a, P: Place<Space = SpaceOf<Self>>>: Send;
    /// The name in reports.
    const NAME: &'static str;

    #[doc(hidden)]
    fn lay_out(dims: &Self::Dims, walk: &mut Walk<'_, Self::Tier>) -> Result<Self::Layout, SizeError>;
    #[doc(hidden)]
    fn build(layout: &Self::Layout, base: &Base<'_, Self::Tier>) -> Self;
    #[doc(hidden)]
    fn has_shape_of(&self, layout: &Self::Layout) -> bool;
    #[doc(hidden)]
    fn keep(&self, keep: &mut Keep);
    #[doc(hidden)]
    fn view<P: Place<Space = SpaceOf<Self>>>(&self, cx: &Cx<P>) -> Self::Ref<'_, P>;
    #[doc(hidden)]
    fn view_mut<P: Place<Space = SpaceOf<Self>>>(&mut self, cx: &Cx<P>) -> Self::Mut<'_, P>;

    /// What it costs with these dimensions, in bytes of its arena. The carve uses the same function.
    ///
    /// # Errors
    /// [`SizeError`] names the field.
    fn price(dims: &Self::Dims) -> Result<Bytes, SizeError> {
        layout::lay_out::<Self>(dims).map(|(_, bytes)| bytes)
    }

    /// Every field with its shape and place, for reports.
    ///
    /// # Errors
    /// [`SizeError`] names the field.
    fn fields(dims: &Self::Dims) -> Result<Vec<FieldInfo>, SizeError> {
        layout::fields::<Self>(dims)
    }
}

/// A storage that can be a field of a storage of tier `T` with dims `D`, which fills in its space.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of `{T}` storage with dims `{D}`",
    label = "neither an array of elements, nor a storage of this tier with these dims",
    note = "an array of elements has a shape: `#[shape(rows, columns)]`",
    note = "a nested struct is a storage itself, of the same tier: `#[tier(..)]`; a struct is carved from one arena, so storages of \
            two tiers are two parts of the bundle",
    note = "if only its dims are others, say which: `#[dims(expression)]`"
)]
pub trait Nests<T: Tier, D> {
    /// It, there.
    type At<S: Space>: Storage<Tier = T::In<S>, Dims = D>;
}

/// The same, with dims of its own: `#[dims(..)]`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of `{T}` storage",
    label = "not a storage of this tier",
    note = "a nested struct is a storage itself, of the same tier: `#[tier(..)]`; a struct is carved from one arena, so storages of \
            two tiers are two parts of the bundle"
)]
pub trait NestsOther<T: Tier> {
    /// It, there.
    type At<S: Space>: Storage<Tier = T::In<S>>;
}

/// The space of a storage.
pub type SpaceOf<T> = <<T as Storage>::Tier as Tier>::Space;

/// An array of storages, `[LayerWeights; layers]` in a declaration.
#[doc(hidden)]
#[derive(Debug)]
pub struct Nested<N>(Box<[N]>);

/// Read views of an array of storages.
pub struct NestedRef<'a, N, P> {
    items: &'a [N],
    cx: crate::place::Mark<P>,
}

/// Write views of an array of storages.
pub struct NestedMut<'a, N, P> {
    items: &'a mut [N],
    cx: crate::place::Mark<P>,
}

impl<N, P> Clone for NestedRef<'_, N, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<N, P> Copy for NestedRef<'_, N, P> {}

impl<N: Storage> Nested<N> {
    pub(crate) fn of(items: impl Iterator<Item = N>) -> Self {
        Nested(items.collect())
    }

    #[doc(hidden)]
    pub fn has_shape_of(&self, layouts: &[N::Layout]) -> bool {
        self.0.len() == layouts.len() && self.0.iter().zip(layouts).all(|(item, layout)| item.has_shape_of(layout))
    }

    pub(crate) fn keep(&self, keep: &mut Keep) {
        self.0.iter().for_each(|item| item.keep(keep));
    }

    pub(crate) fn view<P: Place<Space = SpaceOf<N>>>(&self, cx: &Cx<P>) -> NestedRef<'_, N, P> {
        NestedRef { items: &self.0, cx: cx.mark() }
    }

    pub(crate) fn view_mut<P: Place<Space = SpaceOf<N>>>(&mut self, cx: &Cx<P>) -> NestedMut<'_, N, P> {
        NestedMut { items: &mut self.0, cx: cx.mark() }
    }
}

/// Never implemented: says how one of an array of storages is taken. Its views are made when somebody asks, so there is no reference
/// to give.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "one of an array of storages is taken with `at`",
    label = "not with `[..]`",
    note = "`layers.at(index)` gives the views of one, if there is one; `layers.pair(one, other)` writes two at once",
    note = "`layers.iter()` goes through read views, `layers.iter_mut()` through write views; `layers.read().iter()` reads where others are written"
)]
pub trait TakenAt {
    /// Nothing is known of it, so what is done with it is no second error.
    #[doc(hidden)]
    type One;
    #[doc(hidden)]
    fn stand_in<R>(self) -> R;
}

macro_rules! taken_at { ($($views:ident)*) => { $(
    #[doc(hidden)]
    impl<N, P, I: TakenAt> Index<I> for $views<'_, N, P> {
        type Output = I::One;

        fn index(&self, index: I) -> &I::One {
            index.stand_in()
        }
    }

    #[doc(hidden)]
    impl<N, P, I: TakenAt> IndexMut<I> for $views<'_, N, P> {
        fn index_mut(&mut self, index: I) -> &mut I::One {
            index.stand_in()
        }
    }
)* } }
taken_at!(NestedRef NestedMut);

impl<'a, N: Storage, P: Place<Space = SpaceOf<N>>> NestedRef<'a, N, P> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.items.is_empty()
    }

    /// Element `index`, if there is one.
    pub fn at(self, index: usize) -> Option<N::Ref<'a, P>> {
        self.items.get(index).map(|item| item.view(&Cx::new(self.cx)))
    }

    /// All elements in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = N::Ref<'a, P>> {
        self.items.iter().map(move |item| item.view(&Cx::new(self.cx)))
    }
}

impl<N: Storage, P: Place<Space = SpaceOf<N>>> NestedMut<'_, N, P> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Read views of all of them, for as long as nobody writes.
    pub fn read(&self) -> NestedRef<'_, N, P> {
        NestedRef { items: self.items, cx: self.cx }
    }

    /// Element `index`, if there is one.
    pub fn at(&mut self, index: usize) -> Option<N::Mut<'_, P>> {
        self.items.get_mut(index).map(|item| item.view_mut(&Cx::new(self.cx)))
    }

    /// Two different elements at once; `None` when there is none or they are the same.
    pub fn pair(&mut self, one: usize, other: usize) -> Option<(N::Mut<'_, P>, N::Mut<'_, P>)> {
        let cx = Cx::new(self.cx);
        let [one, other] = self.items.get_disjoint_mut([one, other]).ok()?;
        Some((one.view_mut(&cx), other.view_mut(&cx)))
    }

    /// All elements in order, disjoint.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = N::Mut<'_, P>> {
        let mark = self.cx;
        self.items.iter_mut().map(move |item| item.view_mut(&Cx::new(mark)))
    }
}
