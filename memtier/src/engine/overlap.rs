//! Two streams at once: prefill on one while decode runs on the other.

use std::sync::Arc;

use super::{Engine, Owning, OwnsBuffers, Phase, StepError, Token, step::End};
use crate::{
    bundle::Bundle,
    part::Part,
    place::{Cx, Eager, Mark},
    record::{Fence, LaunchError, Recorder, ScratchFrame, Stream},
    space::Space,
    storage::{SpaceOf, Storage},
};

/// One pass over two streams at once. Nothing orders the two, so each part goes to one side, or is read on both.
///
/// ```
/// # use memtier::{BlockPool, Eager, Engine, GlobalKv, Host, Overlap, Serving, Stream, graph_captured, tier};
/// # #[derive(Clone, Copy)]
/// # pub struct Dims { pub hidden: usize }
/// # #[tier(ModelResident, dims = Dims)]
/// # pub struct Weights { #[shape(hidden)] pub scale: f32 }
/// # #[tier(EnginePersistent, dims = Dims)]
/// # pub struct Work { #[shape(hidden)] pub hidden: f32 }
/// #[graph_captured]
/// pub struct Model {
///     pub weights: Weights,
///     pub prefill: Work,
///     pub decode: Work,
///     pub kv: [BlockPool<GlobalKv<f32>>; 2],
/// }
///
/// # fn example(
/// #     engine: &mut Engine<Serving<Model>>,
/// #     prefill: &mut Stream<Host>,
/// #     decode: &mut Stream<Host>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let Overlap { parts, first, second } = engine.overlap(prefill, decode)?;
/// let weights = parts.weights.shared();
/// let [prompts, answers] = parts.kv.each();
/// // One side, perhaps on a thread of its own …
/// let (scale, mut work, kv) = (weights.on(&first)?.scale, parts.prefill.on(&first)?, prompts.on(&first)?);
/// first.on.copy(&mut work.hidden, scale)?;
/// // … and the other.
/// let (scale, mut work, kv) = (weights.on(&second)?.scale, parts.decode.on(&second)?, answers.on(&second)?);
/// second.on.copy(&mut work.hidden, scale)?;
/// let (prefilled, decoded) = (first.finish()?, second.finish()?);
/// prefilled.wait()?;
/// decoded.wait()?;
/// # Ok(())
/// # }
/// ```
pub struct Overlap<'s, B: Bundle> {
    /// The bundle's parts, each to be handed to one side.
    pub parts: B::Parts<'s>,
    /// The first stream.
    pub first: Side<'s, B::Space>,
    /// The second stream.
    pub second: Side<'s, B::Space>,
}

/// One stream of an [`Overlap`]. Ends when it is finished or dropped.
pub struct Side<'s, S: Space> {
    /// Where launches go.
    pub on: &'s Recorder<Eager<S>>,
    /// The stream's scratch.
    pub scratch: ScratchFrame<'s, Eager<S>>,
    mark: Mark<Eager<S>>,
    overlap: u64,
    end: End<'s>,
}

impl<S: Space> Side<'_, S> {
    /// Ends this side. The fence stands behind everything launched on it; the other side's launches have their own.
    ///
    /// # Errors
    /// [`LaunchError::Device`] when the device failed.
    pub fn finish(self) -> Result<Fence, LaunchError> {
        self.end.finish()
    }
}

/// A part of a bundle in an [`Overlap`], not handed to a side yet.
pub struct Lent<'s, T> {
    part: &'s mut T,
    overlap: u64,
}

/// A storage that both sides of an [`Overlap`] read, and neither writes.
pub struct Shared<'s, T> {
    part: &'s T,
    overlap: u64,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

/// The right to lend parts. Only the engine makes one.
#[doc(hidden)]
pub struct Lend(u64);

impl<'s, T> Lent<'s, T> {
    pub(crate) fn new(part: &'s mut T, lend: &Lend) -> Self {
        Lent { part, overlap: lend.0 }
    }
}

impl<'s, T: Part> Lent<'s, T> {
    /// The views that a step would get of it, for launches on this side.
    ///
    /// # Errors
    /// [`StepError::ForeignStream`] for a side of another overlap.
    pub fn on(self, side: &Side<'_, T::Space>) -> Result<T::View<'s, Eager<T::Space>>, StepError> {
        match side.overlap == self.overlap {
            true => Ok(self.part.view(&Cx::new(side.mark))),
            false => Err(StepError::ForeignStream),
        }
    }
}

impl<'s, T: Storage> Lent<'s, T> {
    /// Gives up writing it while the overlap lasts, so that both sides can read it.
    pub fn shared(self) -> Shared<'s, T> {
        Shared { part: self.part, overlap: self.overlap }
    }
}

impl<'s, T> Lent<'s, Vec<T>> {
    /// The parts of a list, to be handed out one by one.
    pub fn each(self) -> Vec<Lent<'s, T>> {
        self.part.iter_mut().map(|part| Lent { part, overlap: self.overlap }).collect()
    }
}

impl<'s, T, const N: usize> Lent<'s, [T; N]> {
    /// The parts of an array, to be handed out one by one.
    pub fn each(self) -> [Lent<'s, T>; N] {
        self.part.each_mut().map(|part| Lent { part, overlap: self.overlap })
    }
}

impl<'s, T: Storage> Shared<'s, T> {
    /// Read views, for launches on this side.
    ///
    /// # Errors
    /// [`StepError::ForeignStream`] for a side of another overlap.
    pub fn on(self, side: &Side<'_, SpaceOf<T>>) -> Result<T::Ref<'s, Eager<SpaceOf<T>>>, StepError> {
        match side.overlap == self.overlap {
            true => Ok(self.part.view(&Cx::new(side.mark))),
            false => Err(StepError::ForeignStream),
        }
    }
}

impl<Ph: Phase> Engine<Ph> {
    /// Two passes at once, on two streams that nothing orders: prefill overlaps decode. Waits for what was launched before; what
    /// is launched after waits for both. Graphs reach every part, so they are replayed in a [`step`](Engine::step).
    ///
    /// # Errors
    /// [`StepError`].
    pub fn overlap<'s, B: Bundle>(
        &'s mut self,
        first: &'s mut Stream<B::Space>,
        second: &'s mut Stream<B::Space>,
    ) -> Result<Overlap<'s, B>, StepError>
    where
        Ph: OwnsBuffers<B>,
    {
        // What a step's views are checked for at compile time holds for parts, too.
        let _: for<'v> fn(&'v mut B, &Cx<Eager<B::Space>>) -> B::View<'v, Eager<B::Space>> = B::view;
        let steps = [self.next_step(first)?, self.next_step(second)?, self.next_step(second)?];
        let Owning { bundle, .. } = self.phase.parts(Token(()));
        self.lanes.enter_both([first.lane(), second.lane()], steps, bundle)?;
        let lend = Lend(crate::next_id());
        let [_, one, two] = steps;
        let parts = bundle.parts(&lend);
        Ok(Overlap { parts, first: side(first, one, &lend), second: side(second, two, &lend) })
    }
}

fn side<'s, S: Space>(stream: &'s Stream<S>, clock: u64, lend: &Lend) -> Side<'s, S> {
    let mark = Mark::new(stream.lane().id(), clock);
    let end = End { lane: Some(stream.lane()), clock, graphs: None, stack: None, plan: 0 };
    Side { on: &stream.eager, scratch: stream.scratch.frame(mark), mark, overlap: lend.0, end }
}

impl super::Lanes {
    /// As [`enter`](super::Lanes::enter), for two streams that are not ordered after this: what prepares the parts is done before.
    fn enter_both<B: Bundle>(
        &mut self,
        lanes: [&Arc<crate::record::Lane>; 2],
        [prepare, first, second]: [u64; 3],
        bundle: &B,
    ) -> Result<(), crate::backend::QueueError> {
        self.enter(lanes[0], prepare, bundle)?;
        lanes[0].end(prepare)?;
        self.drain()?;
        self.introduce(lanes[1], bundle);
        lanes[1].drain()?;
        lanes[0].begin(first)?;
        lanes[1].begin(second)
    }
}
