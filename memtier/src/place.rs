//! Places: where a span was taken. One type parameter carries both the memory space and the capture.

use std::marker::PhantomData;

use crate::{
    sealed::Sealed,
    space::{Host, Is, Space},
};

/// Where a span was taken: in an eager step, while loading, or inside one capture.
pub trait Place: Sealed + Send + Sync + Sized + SameMode<Self> + Reached<Self> {
    /// The memory space of everything taken here.
    type Space: Space;
}

/// Taken outside any capture: good for launches on the step's stream.
pub struct Eager<S>(PhantomData<fn() -> S>);

/// Taken while loading: good for uploads from host staging and load-time kernels, gone before serving.
pub struct Uploading<S>(PhantomData<fn() -> S>);

/// Taken inside the capture branded `'b`: may be baked into that graph, and cannot leave the closure.
pub struct Captured<'b, S>(PhantomData<(fn(&'b ()) -> &'b (), fn() -> S)>);

/// Taken in host memory beside that of `P`: a part of a bundle whose stream is a device's. Copies of that stream reach it, with
/// [`copy_across`](crate::Recorder::copy_across); nothing else does.
pub struct Beside<P>(PhantomData<fn(P) -> P>);

impl<S> Sealed for Eager<S> {}
impl<S: Space> Place for Eager<S> {
    type Space = S;
}
impl<S> Sealed for Uploading<S> {}
impl<S: Space> Place for Uploading<S> {
    type Space = S;
}
impl<S> Sealed for Captured<'_, S> {}
impl<S: Space> Place for Captured<'_, S> {
    type Space = S;
}

impl<P> Sealed for Beside<P> {}
impl<P: Place> Place for Beside<P> {
    type Space = Host;
}

/// A place that copies of a launch at `Launch` reach: its own, and host memory beside it.
#[diagnostic::on_unimplemented(
    message = "copies of this recorder do not reach `{Self}`",
    label = "taken in another step, load or capture, or beside another device",
    note = "`copy_across` goes between the memory of the step's stream and the host memory beside it in the same bundle: take both \
            spans from the `step.buffers` of the step that launches"
)]
pub trait Reached<Launch>: Sealed {
    /// Whether it is host memory beside the launch's own.
    #[doc(hidden)]
    const BESIDE: bool;
}
impl<S: Space> Reached<Eager<S>> for Eager<S> {
    const BESIDE: bool = false;
}
impl<S: Space> Reached<Uploading<S>> for Uploading<S> {
    const BESIDE: bool = false;
}
impl<'b, S: Space> Reached<Captured<'b, S>> for Captured<'b, S> {
    const BESIDE: bool = false;
}
impl<P: Place> Reached<P> for Beside<P> {
    const BESIDE: bool = true;
}
impl<P: Place> Reached<Beside<P>> for Beside<P> {
    const BESIDE: bool = false;
}

/// A place whose spans a launch at `Launch` may use: the same space, and the same capture or none.
pub trait Fits<Launch: Place>: Place<Space: Is<Launch::Space>> + SameMode<Launch> {}
impl<P, Launch: Place> Fits<Launch> for P where P: Place<Space: Is<Launch::Space>> + SameMode<Launch> {}

/// Whether a span taken at `Self` may be used by a launch at `Launch`: both eager, both loading, or both in the same capture.
#[diagnostic::on_unimplemented(
    message = "a launch at `{Launch}` cannot use a span taken at `{Self}`",
    label = "of another place",
    note = "launches use spans of their own step, load or capture; host memory beside a device's is copied: `on.copy_across(..)`"
)]
pub trait SameMode<Launch> {}
impl<S, R> SameMode<Eager<R>> for Eager<S> {}
impl<S, R> SameMode<Uploading<R>> for Uploading<S> {}
impl<'b, S, R> SameMode<Captured<'b, R>> for Captured<'b, S> {}
impl<P: SameMode<L>, L> SameMode<Beside<L>> for Beside<P> {}

// The wrong combinations get a sentence each, from helper traits that are never implemented. Their `Self` is the launch:
// rustc shows the innermost sentence only where its `Self` differs from that of the outermost bound.
impl<'b, S, R> SameMode<Captured<'b, R>> for Eager<S> where Captured<'b, R>: Owns<Eager<S>> {}
impl<'b, S, R> SameMode<Captured<'b, R>> for Uploading<S> where Captured<'b, R>: Owns<Uploading<S>> {}
impl<'b, S, R> SameMode<Eager<R>> for Captured<'b, S> where Eager<R>: Shares<Captured<'b, S>> {}
impl<S, R> SameMode<Eager<R>> for Uploading<S> where Eager<R>: Shares<Uploading<S>> {}
impl<'b, S, R> SameMode<Uploading<R>> for Captured<'b, S> where Uploading<R>: Shares<Captured<'b, S>> {}
impl<S, R> SameMode<Uploading<R>> for Eager<S> where Uploading<R>: Shares<Eager<S>> {}
impl<P, R> SameMode<Eager<R>> for Beside<P> where Eager<R>: LaunchesOver<Beside<P>> {}
impl<P, R> SameMode<Uploading<R>> for Beside<P> where Uploading<R>: LaunchesOver<Beside<P>> {}
impl<'b, P, R> SameMode<Captured<'b, R>> for Beside<P> where Captured<'b, R>: LaunchesOver<Beside<P>> {}

/// Never implemented: explains a launch over memory that lies beside the stream's own (row l).
#[diagnostic::on_unimplemented(
    message = "host memory beside the device's is used by a launch",
    label = "copies of the device's stream reach this part of the bundle, launches do not",
    note = "bring it over first, in stream order: `on.copy_across(&mut device_span, host_span.read())`",
    note = "a part that CPU operations compute with belongs to a bundle in `Host` memory, of an engine with a `Host` stream"
)]
pub trait LaunchesOver<Span> {}

/// Never implemented: explains an eager span in a capture (row d).
#[diagnostic::on_unimplemented(
    message = "this buffer is not owned by the bundle being captured",
    label = "its address would be baked into a graph that can outlive it",
    note = "inside `record`, take every span from the step that the closure receives: `step.buffers` or `step.scratch`",
    note = "to capture another buffer, make its storage a field of the `#[graph_captured]` bundle"
)]
pub trait Owns<Span> {}

/// Never implemented: explains a span of a capture or of a load in an eager launch.
#[diagnostic::on_unimplemented(
    message = "a span of one step, capture or load is used by a launch of another",
    label = "not taken where the launch is",
    note = "span and recorder come from the same step, capture or load: `step.buffers` or `step.scratch` with `step.on`, \
            `load.buffers` with `load.on`",
    note = "a staged tensor is uploaded while loading, `tensor.upload(load.on, ..)`; in a step the host writes with `step.on.write(..)`"
)]
pub trait Shares<Span> {}

/// Bound of everything that would be frozen into a graph if it were done while recording (row h).
#[diagnostic::on_unimplemented(
    message = "this cannot be done inside a graph capture or a load",
    label = "a graph would replay the value or block seen while recording; a load takes host staging only",
    note = "host values go in before `replay`, through `engine.step(..)` and `on.write(..)`; blocks are reached through \
            the pool's slab and a page table; nothing is allocated while recording",
    note = "while loading, fill a buffer of `load.staging` and `upload` it"
)]
pub trait OutsideCapture: Place {}
impl<S: Space> OutsideCapture for Eager<S> {}
impl<P: OutsideCapture> OutsideCapture for Beside<P> {}

/// The right to take spans at place `P`. Only the engine makes one, for a step, a load or a capture, and lends it: an
/// address is handed out together with the recorder that may use it.
#[doc(hidden)]
pub struct Cx<P> {
    mark: Mark<P>,
}

/// The stream that spans may be used on, and the step they were taken in. Copied inside the crate only.
pub(crate) struct Mark<P> {
    pub(crate) stream: u32,
    pub(crate) clock: u64,
    place: PhantomData<fn(P) -> P>,
}

impl<P> Clone for Mark<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Mark<P> {}

impl<P> Mark<P> {
    pub(crate) fn new(stream: u32, clock: u64) -> Self {
        Mark { stream, clock, place: PhantomData }
    }
}

impl<P: Place> Cx<P> {
    pub(crate) fn new(mark: Mark<P>) -> Self {
        Cx { mark }
    }

    pub(crate) fn mark(&self) -> Mark<P> {
        self.mark
    }
}
