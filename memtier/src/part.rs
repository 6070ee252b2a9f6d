//! Parts: what one plan line pays for. Storages, pools, page tables, and optional, listed and repeated ones of them.

use crate::{
    backend::AcquireError,
    layout::{self, Base, SizeError},
    line::{Ground, Lots},
    owned::Keep,
    place::{Cx, Place},
    plan::Demand,
    pool::PoolGate,
    space::Space,
    storage::{SpaceOf, Storage},
    tier::{OutlivesModel, Tier},
    units::Bytes,
};

/// Something with a price: a part, or a stream.
///
/// # Safety
/// Implemented by this crate and its macros only: the carve trusts the price.
pub unsafe trait Declare: Sized + Send + 'static {
    /// What the price depends on.
    type Spec: Send + Sync + 'static;
    /// What the price found out, for the carve: the dimensions are looked at once.
    #[doc(hidden)]
    type Priced: Send + 'static;
    /// The name in messages.
    #[doc(hidden)]
    const LABEL: &'static str;
    /// The demands: one, or as many as there are items.
    #[doc(hidden)]
    fn price(spec: &Self::Spec, add: &mut dyn FnMut(Demand)) -> Result<Self::Priced, SizeError>;

    /// Commits what is there from the start and was not committed when the plan opened its regions. Does nothing the second time.
    #[doc(hidden)]
    fn first_commit(priced: &Self::Priced, lots: &mut Lots<'_>) -> Result<(), AcquireError> {
        let _ = (priced, lots);
        Ok(())
    }

    /// What declaring it with this size would ask the planner for. Pure: for the `reprice` function of a plan request.
    ///
    /// # Errors
    /// [`SizeError`] names the field.
    fn demands(spec: &Self::Spec) -> Result<Vec<Demand>, SizeError> {
        let mut demands = Vec::new();
        Self::price(spec, &mut |demand| demands.push(demand))?;
        Ok(demands)
    }
}

/// A field of a bundle: a storage, a pool or a page table.
///
/// # Safety
/// Implemented by this crate and its macros only: views must be borrowed from the part, and `keep` must name all regions.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a storage nor another part of a bundle",
    label = "not a part",
    note = "parts are storages (structs with `#[tier(..)]`), `BlockPool`, `PageTable`, and `Option`, `Vec` and arrays of them",
    note = "pools and page tables say what their blocks are: `BlockPool<GlobalKv<f16>>`"
)]
pub unsafe trait Part: Declare + Sync {
    /// Where it is.
    type Space: Space;
    /// What a step gets: read views of model-resident storage, write views of the rest.
    type View<'a, P: Place<Space = Self::Space>>: Send
    where
        Self: 'a;
    /// What a loader gets: write views.
    type LoadView<'a, P: Place<Space = Self::Space>>: Send
    where
        Self: 'a;
    /// What a model swap leaves: itself, or [`Gone`].
    type Kept: Send;
    /// Whether launches read in it where to go: it has to be where they are.
    #[doc(hidden)]
    const STEERS: bool = false;

    #[doc(hidden)]
    fn carve(priced: Self::Priced, ground: &mut Ground) -> Self;
    #[doc(hidden)]
    fn view<P: Place<Space = Self::Space>>(&mut self, cx: &Cx<P>) -> Self::View<'_, P>;
    #[doc(hidden)]
    fn load_view<P: Place<Space = Self::Space>>(&mut self, cx: &Cx<P>) -> Self::LoadView<'_, P>;
    #[doc(hidden)]
    fn kept(self) -> Self::Kept;
    /// The regions that a graph of its bundle keeps.
    #[doc(hidden)]
    fn keep(&self, keep: &mut Keep);
    /// Every pool in it.
    #[doc(hidden)]
    fn gates(&self, _visit: &mut dyn FnMut(&dyn PoolGate)) {}
}

/// A part that is still there after a model swap, so it can be a line of the next model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` did not survive the model swap",
    label = "there is nothing to keep",
    note = "`ModelResident` storage goes with its model (its place is a `Gone`): `declare` it for the next one",
    note = "streams and pinned buffers are no parts of a model: they stay open over a swap, where they are"
)]
pub trait Survives: Part {
    /// Whether it is what was priced.
    #[doc(hidden)]
    fn is_what_was_priced(&self, priced: &Self::Priced) -> bool;
    /// What it may still commit.
    #[doc(hidden)]
    fn growth(&self) -> Bytes {
        Bytes::ZERO
    }
}

/// What is left of a model-resident storage after a swap: nothing.
#[derive(Debug)]
pub struct Gone(());

impl Gone {
    pub(crate) fn new() -> Self {
        Gone(())
    }
}

// SAFETY: the demand is the layout's own size.
unsafe impl<T: Storage> Declare for T {
    type Spec = T::Dims;
    type Priced = T::Layout;
    const LABEL: &'static str = <T as Storage>::NAME;

    fn price(dims: &T::Dims, add: &mut dyn FnMut(Demand)) -> Result<T::Layout, SizeError> {
        let (layout, bytes) = layout::lay_out::<T>(dims)?;
        add(Demand::bytes(<T as Storage>::NAME, T::Tier::TIER, SpaceOf::<T>::NAME, bytes));
        Ok(layout)
    }
}

// SAFETY: views are the storage's own, by the contract of `Storage`.
unsafe impl<T: Storage> Part for T {
    type Space = SpaceOf<T>;
    type View<'a, P: Place<Space = SpaceOf<T>>> = <T::Tier as Tier>::View<'a, T, P>;
    type LoadView<'a, P: Place<Space = SpaceOf<T>>> = T::Mut<'a, P>;
    type Kept = <T::Tier as Tier>::Kept<T>;

    fn carve(layout: T::Layout, ground: &mut Ground) -> Self {
        let lot = ground.take();
        T::build(&layout, &Base::new(&lot.region, lot.addr))
    }

    fn view<P: Place<Space = SpaceOf<T>>>(&mut self, cx: &Cx<P>) -> Self::View<'_, P> {
        <T::Tier as Tier>::view(self, cx)
    }

    fn load_view<P: Place<Space = SpaceOf<T>>>(&mut self, cx: &Cx<P>) -> T::Mut<'_, P> {
        self.view_mut(cx)
    }

    fn kept(self) -> Self::Kept {
        <T::Tier as Tier>::kept(self)
    }

    fn keep(&self, keep: &mut Keep) {
        Storage::keep(self, keep);
    }
}

impl<T: Storage> Survives for T
where
    T::Tier: OutlivesModel,
{
    fn is_what_was_priced(&self, layout: &T::Layout) -> bool {
        self.has_shape_of(layout)
    }
}

// A part that the configuration may leave out: `vision: Option<VisionTower<S>>`. Declared with `Some(spec)` or `None`; the
// line is there either way and costs nothing when it is out.

// SAFETY: the demands are the part's own, or none.
unsafe impl<T: Part> Declare for Option<T> {
    type Spec = Option<T::Spec>;
    type Priced = Option<T::Priced>;
    const LABEL: &'static str = T::LABEL;

    fn price(spec: &Option<T::Spec>, add: &mut dyn FnMut(Demand)) -> Result<Option<T::Priced>, SizeError> {
        spec.as_ref().map(|spec| T::price(spec, add)).transpose()
    }

    fn first_commit(priced: &Option<T::Priced>, lots: &mut Lots<'_>) -> Result<(), AcquireError> {
        priced.as_ref().map_or(Ok(()), |priced| T::first_commit(priced, lots))
    }
}

// SAFETY: everything is the part's own.
unsafe impl<T: Part> Part for Option<T> {
    type Space = T::Space;
    type View<'a, P: Place<Space = T::Space>> = Option<T::View<'a, P>>;
    type LoadView<'a, P: Place<Space = T::Space>> = Option<T::LoadView<'a, P>>;
    type Kept = Option<T::Kept>;
    const STEERS: bool = T::STEERS;

    fn carve(priced: Option<T::Priced>, ground: &mut Ground) -> Self {
        priced.map(|priced| T::carve(priced, ground))
    }

    fn view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> Option<T::View<'_, P>> {
        self.as_mut().map(|part| part.view(cx))
    }

    fn load_view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> Option<T::LoadView<'_, P>> {
        self.as_mut().map(|part| part.load_view(cx))
    }

    fn kept(self) -> Option<T::Kept> {
        self.map(T::kept)
    }

    fn keep(&self, keep: &mut Keep) {
        self.iter().for_each(|part| part.keep(keep));
    }

    fn gates(&self, visit: &mut dyn FnMut(&dyn PoolGate)) {
        self.iter().for_each(|part| part.gates(visit));
    }
}

impl<T: Survives> Survives for Option<T> {
    fn is_what_was_priced(&self, priced: &Option<T::Priced>) -> bool {
        match (self, priced) {
            (Some(part), Some(priced)) => part.is_what_was_priced(priced),
            (part, priced) => part.is_none() && priced.is_none(),
        }
    }

    fn growth(&self) -> Bytes {
        self.as_ref().map_or(Bytes::ZERO, T::growth)
    }
}

// As many parts as the model has groups: `Vec<BlockPool<..>>`, declared with a `Vec` of specs.

// SAFETY: the demands are the parts' own.
unsafe impl<T: Part> Declare for Vec<T> {
    type Spec = Vec<T::Spec>;
    type Priced = Vec<T::Priced>;
    const LABEL: &'static str = T::LABEL;

    fn price(specs: &Vec<T::Spec>, add: &mut dyn FnMut(Demand)) -> Result<Vec<T::Priced>, SizeError> {
        specs.iter().map(|spec| T::price(spec, add)).collect()
    }

    fn first_commit(priced: &Vec<T::Priced>, lots: &mut Lots<'_>) -> Result<(), AcquireError> {
        priced.iter().try_for_each(|priced| T::first_commit(priced, lots))
    }
}

// SAFETY: everything is the parts' own.
unsafe impl<T: Part> Part for Vec<T> {
    type Space = T::Space;
    type View<'a, P: Place<Space = T::Space>> = Vec<T::View<'a, P>>;
    type LoadView<'a, P: Place<Space = T::Space>> = Vec<T::LoadView<'a, P>>;
    type Kept = Vec<T::Kept>;
    const STEERS: bool = T::STEERS;

    fn carve(priced: Vec<T::Priced>, ground: &mut Ground) -> Self {
        priced.into_iter().map(|priced| T::carve(priced, ground)).collect()
    }

    fn view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> Vec<T::View<'_, P>> {
        self.iter_mut().map(|part| part.view(cx)).collect()
    }

    fn load_view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> Vec<T::LoadView<'_, P>> {
        self.iter_mut().map(|part| part.load_view(cx)).collect()
    }

    fn kept(self) -> Vec<T::Kept> {
        self.into_iter().map(T::kept).collect()
    }

    fn keep(&self, keep: &mut Keep) {
        self.iter().for_each(|part| part.keep(keep));
    }

    fn gates(&self, visit: &mut dyn FnMut(&dyn PoolGate)) {
        self.iter().for_each(|part| part.gates(visit));
    }
}

impl<T: Survives> Survives for Vec<T> {
    fn is_what_was_priced(&self, priced: &Vec<T::Priced>) -> bool {
        self.len() == priced.len() && self.iter().zip(priced).all(|(part, priced)| part.is_what_was_priced(priced))
    }

    fn growth(&self) -> Bytes {
        self.iter().fold(Bytes::ZERO, |sum, part| sum.plus(part.growth()).unwrap_or(Bytes::MAX))
    }
}

// A number of parts that the type says, without a heap allocation a step: `[BlockPool<..>; 2]`.

// SAFETY: the demands are the parts' own.
unsafe impl<T: Part, const N: usize> Declare for [T; N] {
    type Spec = [T::Spec; N];
    type Priced = Vec<T::Priced>;
    const LABEL: &'static str = T::LABEL;

    fn price(specs: &[T::Spec; N], add: &mut dyn FnMut(Demand)) -> Result<Vec<T::Priced>, SizeError> {
        specs.iter().map(|spec| T::price(spec, add)).collect()
    }

    fn first_commit(priced: &Vec<T::Priced>, lots: &mut Lots<'_>) -> Result<(), AcquireError> {
        priced.iter().try_for_each(|priced| T::first_commit(priced, lots))
    }
}

// SAFETY: everything is the parts' own.
unsafe impl<T: Part, const N: usize> Part for [T; N] {
    type Space = T::Space;
    type View<'a, P: Place<Space = T::Space>> = [T::View<'a, P>; N];
    type LoadView<'a, P: Place<Space = T::Space>> = [T::LoadView<'a, P>; N];
    type Kept = [T::Kept; N];
    const STEERS: bool = T::STEERS;

    fn carve(priced: Vec<T::Priced>, ground: &mut Ground) -> Self {
        let mut priced = priced.into_iter();
        std::array::from_fn(|_| T::carve(priced.next().expect("`price` made one for each"), ground))
    }

    fn view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> [T::View<'_, P>; N] {
        self.each_mut().map(|part| part.view(cx))
    }

    fn load_view<P: Place<Space = T::Space>>(&mut self, cx: &Cx<P>) -> [T::LoadView<'_, P>; N] {
        self.each_mut().map(|part| part.load_view(cx))
    }

    fn kept(self) -> [T::Kept; N] {
        self.map(T::kept)
    }

    fn keep(&self, keep: &mut Keep) {
        self.iter().for_each(|part| part.keep(keep));
    }

    fn gates(&self, visit: &mut dyn FnMut(&dyn PoolGate)) {
        self.iter().for_each(|part| part.gates(visit));
    }
}

impl<T: Survives, const N: usize> Survives for [T; N] {
    fn is_what_was_priced(&self, priced: &Vec<T::Priced>) -> bool {
        self.len() == priced.len() && self.iter().zip(priced).all(|(part, priced)| part.is_what_was_priced(priced))
    }

    fn growth(&self) -> Bytes {
        self.iter().fold(Bytes::ZERO, |sum, part| sum.plus(part.growth()).unwrap_or(Bytes::MAX))
    }
}
