//! Tiers: how long a storage lives.

use std::marker::PhantomData;

use crate::{
    part::Gone,
    place::{Cx, Place},
    plan,
    sealed::Sealed,
    space::{Host, Space},
    storage::Storage,
};

/// How long a storage lives. A tier type also names the space, so `Owned<f32, EnginePersistent<Cuda>>` says both.
pub trait Tier: Sealed + Send + Sync + 'static {
    /// Where its arena is.
    type Space: Space;
    /// The same tier in another space.
    #[doc(hidden)]
    type In<S: Space>: Tier<Space = S>;
    /// The name in plans and reports.
    const TIER: plan::Tier;
    /// What a forward pass gets of a storage in this tier.
    type View<'a, T: Storage<Tier = Self>, P: Place<Space = Self::Space>>: Send;
    /// What is left of a storage in this tier after a model swap.
    type Kept<T: Storage<Tier = Self>>: Send;

    #[doc(hidden)]
    fn view<'a, T: Storage<Tier = Self>, P: Place<Space = Self::Space>>(
        storage: &'a mut T,
        cx: &Cx<P>,
    ) -> Self::View<'a, T, P>;
    #[doc(hidden)]
    fn kept<T: Storage<Tier = Self>>(storage: T) -> Self::Kept<T>;
}

/// T1: from model load to unload. Written while `Planning`, read-only afterwards, gone at a swap.
pub struct ModelResident<S = Host>(PhantomData<fn() -> S>);

/// T2: as long as the process. Written by every step, survives a swap at the same address.
pub struct EnginePersistent<S = Host>(PhantomData<fn() -> S>);

impl<S> Sealed for ModelResident<S> {}
impl<S: Space> Tier for ModelResident<S> {
    type Space = S;
    type In<R: Space> = ModelResident<R>;
    const TIER: plan::Tier = plan::Tier::ModelResident;
    type View<'a, T: Storage<Tier = Self>, P: Place<Space = S>> = T::Ref<'a, P>;
    type Kept<T: Storage<Tier = Self>> = Gone;

    fn view<'a, T: Storage<Tier = Self>, P: Place<Space = S>>(storage: &'a mut T, cx: &Cx<P>) -> T::Ref<'a, P> {
        storage.view(cx)
    }

    fn kept<T: Storage<Tier = Self>>(storage: T) -> Gone {
        drop(storage);
        Gone::new()
    }
}

impl<S> Sealed for EnginePersistent<S> {}
impl<S: Space> Tier for EnginePersistent<S> {
    type Space = S;
    type In<R: Space> = EnginePersistent<R>;
    const TIER: plan::Tier = plan::Tier::EnginePersistent;
    type View<'a, T: Storage<Tier = Self>, P: Place<Space = S>> = T::Mut<'a, P>;
    type Kept<T: Storage<Tier = Self>> = T;

    fn view<'a, T: Storage<Tier = Self>, P: Place<Space = S>>(storage: &'a mut T, cx: &Cx<P>) -> T::Mut<'a, P> {
        storage.view_mut(cx)
    }

    fn kept<T: Storage<Tier = Self>>(storage: T) -> T {
        storage
    }
}

/// The tiers whose storage is still there after a model swap (row e).
#[diagnostic::on_unimplemented(
    message = "`{Self}` storage does not survive a model swap",
    label = "gone with its model",
    note = "only `EnginePersistent` storage, pools and page tables can be kept; declare this one again for the new model"
)]
pub trait OutlivesModel: Tier {}
impl<S: Space> OutlivesModel for EnginePersistent<S> {}

/// Type equality of two tiers, with a sentence for when they differ (row e).
#[diagnostic::on_unimplemented(
    message = "`{Self}` storage inside `{Other}` storage",
    label = "lives in another tier than the struct that contains it",
    note = "a struct is carved from one arena: give both the same `#[tier(..)]`, or make them two fields of the bundle"
)]
pub trait SameTier<Other> {}
impl<T: Tier> SameTier<T> for T {}
