//! Bundles: everything an engine owns for one model.

use crate::{
    engine::Lend,
    generated::{Gates, Prices, Swap},
    layout::SizeError,
    line::CarveError,
    line::{Carver, Check},
    owned::Keep,
    part::Part,
    place::{Beside, Cx, Mark, Place},
    plan::Demand,
    space::{Cuda, Host, Space},
};

/// Everything an engine owns for one model, and all that its graphs may bake in: a struct of parts with
/// [`#[graph_captured]`](crate::graph_captured).
///
/// # Safety
///
/// Implemented by the macro only: views must be borrowed from the bundle's own parts, `keep` and `gates` must visit all of
/// them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a bundle",
    label = "no carved bundle here",
    note = "in `Planning`, first `carve` the lines of a `#[graph_captured]` struct: that is what steps, graphs and `serve` \
            work on",
    note = "a storage is a part of one: make it a field of a `#[graph_captured]` struct, and declare that with `declare_bundle`"
)]
pub unsafe trait Bundle: Sized + Send + Sync + 'static {
    /// Where its stream launches, and its parts are: all of them, but for those in host memory beside a device's.
    type Space: Space;
    /// The same struct with the size of each part: what it is declared from.
    type Spec: Send + Sync + 'static;
    /// The same struct with a plan line in place of each part.
    type Lines: Lines<Bundle = Self>;
    /// The same struct with what a step gets of each part.
    type View<'a, P: Place<Space = Self::Space>>: Send
    where
        Self: 'a;
    /// The same struct with what a loader gets of each part.
    type LoadView<'a, P: Place<Space = Self::Space>>: Send
    where
        Self: 'a;
    /// The same struct with each part lent: what an [`Overlap`](crate::Overlap) gets.
    type Parts<'a>: Send
    where
        Self: 'a;
    /// The same struct with what a model swap leaves of each part.
    type Kept: Send;
    /// The name in reports.
    const NAME: &'static str;

    #[doc(hidden)]
    fn price(spec: &Self::Spec, prices: &mut Prices<'_>) -> Result<(), SizeError>;

    /// What declaring it with these sizes would ask the planner for. Pure: for the `reprice` function of a plan request.
    ///
    /// # Errors
    /// [`SizeError`] names the field.
    fn demands(spec: &Self::Spec) -> Result<Vec<Demand>, SizeError> {
        let mut demands = Vec::new();
        Self::price(spec, &mut Prices(&mut |demand| demands.push(demand)))?;
        Ok(demands)
    }

    #[doc(hidden)]
    fn declare(spec: Self::Spec, declarer: &mut crate::line::Declarer<'_>) -> Self::Lines;
    #[doc(hidden)]
    fn carve(lines: Self::Lines, carver: &mut Carver<'_>) -> Self;
    #[doc(hidden)]
    fn view<P: Place<Space = Self::Space>>(&mut self, cx: &Cx<P>) -> Self::View<'_, P>;
    #[doc(hidden)]
    fn load_view<P: Place<Space = Self::Space>>(&mut self, cx: &Cx<P>) -> Self::LoadView<'_, P>;
    #[doc(hidden)]
    fn parts(&mut self, lend: &Lend) -> Self::Parts<'_>;
    #[doc(hidden)]
    fn kept(self, swap: &Swap) -> Self::Kept;
    #[doc(hidden)]
    fn keep(&self, keep: &mut Keep);
    /// Every pool in it.
    #[doc(hidden)]
    fn gates(&self, gates: &mut Gates<'_>);
}

/// A space that a part can be in where the bundle is in `Other`: the same, or host memory beside a device's. The wrong
/// combinations get a sentence (row l).
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a part in `{Self}` memory, in a bundle whose first part is in `{Other}` memory",
    label = "not in `{Other}` memory",
    note = "the first part of a bundle says where its stream launches; the others are there too, or in `Host` memory beside a \
            device's, which copies reach: write `Part<{Other}>`, or put the device's part first",
    note = "to choose the space later take it as a parameter, `struct Model<S: Space = Host>`, and give it to the parts"
)]
pub trait SpaceOfBundle<Other: Space>: Space {
    /// Whether it is another space.
    const BESIDE: bool;
    /// `P`, or what lies beside it.
    type Place<P: Place<Space = Other>>: Place<Space = Self>;
    /// The right to take spans there.
    fn there<P: Place<Space = Other>>(cx: &Cx<P>) -> Cx<Self::Place<P>>;
}
impl<S: Space> SpaceOfBundle<S> for S {
    const BESIDE: bool = false;
    type Place<P: Place<Space = S>> = P;
    fn there<P: Place<Space = S>>(cx: &Cx<P>) -> Cx<P> {
        Cx::new(cx.mark())
    }
}
impl SpaceOfBundle<Cuda> for Host {
    const BESIDE: bool = true;
    type Place<P: Place<Space = Cuda>> = Beside<P>;
    fn there<P: Place<Space = Cuda>>(cx: &Cx<P>) -> Cx<Beside<P>> {
        let Mark { stream, clock, .. } = cx.mark();
        Cx::new(Mark::new(stream, clock))
    }
}

/// A part of a bundle in space `S`. Its view is taken at the place of the bundle's: where the spaces differ, that is said once,
/// at the part, and everything else still has a type.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a storage nor another part of a bundle",
    label = "not a part",
    note = "parts are storages (structs with `#[tier(..)]`), `BlockPool`, `PageTable`, and `Option`, `Vec` and arrays of them",
    note = "what else an engine has (streams, pinned buffers, requests, caches, numbers) is kept beside it, in a struct of yours"
)]
pub trait PartOf<S: Space>: Part {
    /// `P`, in the part's own space.
    type There<P: Place<Space = S>>: Place<Space = Self::Space>;
    /// Whether launches reach it, if they read in it where to go.
    const READ_WHERE_IT_IS: bool;
    /// The right to take spans there.
    fn there<P: Place<Space = S>>(cx: &Cx<P>) -> Cx<Self::There<P>>;
}
impl<T: Part, S: Space> PartOf<S> for T
where
    T::Space: SpaceOfBundle<S>,
{
    type There<P: Place<Space = S>> = <T::Space as SpaceOfBundle<S>>::Place<P>;
    const READ_WHERE_IT_IS: bool = !(T::STEERS && <T::Space as SpaceOfBundle<S>>::BESIDE);
    fn there<P: Place<Space = S>>(cx: &Cx<P>) -> Cx<Self::There<P>> {
        <T::Space as SpaceOfBundle<S>>::there(cx)
    }
}

/// What a step gets of a part.
#[doc(hidden)]
pub type ViewOf<'a, T, S, P> = <T as Part>::View<'a, <T as PartOf<S>>::There<P>>;
/// What a loader gets of a part.
#[doc(hidden)]
pub type LoadViewOf<'a, T, S, P> = <T as Part>::LoadView<'a, <T as PartOf<S>>::There<P>>;

/// A bundle with a line in place of each part.
///
/// # Safety
/// Implemented by the macro only: `check` must look at every line that `Bundle::carve` uses.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a bundle is carved from",
    label = "not the lines that `declare_bundle` returned",
    note = "`carve` takes all lines of a `#[graph_captured]` struct at once, its `..Lines`",
    note = "streams and pinned buffers have lines of their own: `engine.open_stream(line)`, `engine.pin(line)`, after the carve"
)]
pub unsafe trait Lines: Send + Sized {
    /// What it is carved into.
    type Bundle: Bundle<Lines = Self>;

    #[doc(hidden)]
    fn check(&self, check: &mut Check<'_>) -> Result<(), CarveError>;
}
