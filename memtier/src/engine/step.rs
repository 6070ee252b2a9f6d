//! Steps: one forward pass, eager or captured.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Engine, Owning, OwnsBuffers, Phase, Token};
use crate::{
    backend::QueueError,
    bundle::Bundle,
    owned::Keep,
    place::{Captured, Cx, Eager, Mark, OutsideCapture, Place},
    record::{
        Fence, Graph, GraphExec, GraphStore, Lane, LaunchError, RecordError, Recorder, ReplayError, ScratchFrame,
        ScratchStack, Stream,
    },
    space::Space,
};

/// What a forward pass works with, eager or captured.
pub struct Step<'s, B: Bundle, P: Place<Space = B::Space>> {
    /// The bundle's views: one per field of every part. `&mut view.field` is an output, `&view.field` an input.
    pub buffers: B::View<'s, P>,
    /// Where launches go.
    pub on: &'s Recorder<P>,
    /// The stream's scratch.
    pub scratch: ScratchFrame<'s, P>,
    end: End<'s>,
}

/// Marks the end of a step on its stream, when it is finished, dropped or unwound.
pub(super) struct End<'s> {
    /// `None` in a capture.
    pub(super) lane: Option<&'s Arc<Lane>>,
    pub(super) clock: u64,
    pub(super) graphs: Option<&'s mut GraphStore>,
    pub(super) stack: Option<&'s ScratchStack>,
    pub(super) plan: u64,
}

impl End<'_> {
    /// Marks the end, on the stream that the step was opened on: a recorder is a reference, and can be exchanged for another's.
    pub(super) fn finish(self) -> Result<Fence, LaunchError> {
        let lane = self.lane.ok_or(LaunchError::StepEnded)?.clone();
        lane.end(self.clock)?;
        Ok(Fence { lane, step: self.clock })
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lane {
            // A device that fails here fails again where somebody waits, and there it is an error.
            let _ = lane.end(self.clock);
        }
    }
}

/// A step was not opened. Nothing was launched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The stream belongs to another engine.
    #[error("the stream was opened by another engine: use a stream of this one")]
    ForeignStream,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] QueueError),
}

impl<Ph: Phase> Engine<Ph> {
    pub(super) fn next_step<S: Space>(&mut self, stream: &Stream<S>) -> Result<u64, StepError> {
        if stream.lane().engine() != self.core.engine {
            return Err(StepError::ForeignStream);
        }
        self.core.clock += 1;
        Ok(self.core.clock)
    }

    /// One forward pass on `stream`: views of every buffer, the recorder and its scratch. Ends when the step is finished or
    /// dropped.
    ///
    /// # Errors
    /// [`StepError`].
    pub fn step<'s, B: Bundle>(
        &'s mut self,
        stream: &'s mut Stream<B::Space>,
    ) -> Result<Step<'s, B, Eager<B::Space>>, StepError>
    where
        Ph: OwnsBuffers<B>,
    {
        let clock = self.next_step(stream)?;
        let Owning { bundle, graphs } = self.phase.parts(Token(()));
        self.lanes.enter(stream.lane(), clock, bundle)?;
        let mark = Mark::new(stream.lane().id(), clock);
        let stream = &*stream;
        let stack = Some(&*stream.scratch);
        let end = End { lane: Some(stream.lane()), clock, graphs: Some(graphs), stack, plan: self.core.plan };
        let scratch = stream.scratch.frame(mark);
        Ok(Step { buffers: bundle.view(&Cx::new(mark)), on: &stream.eager, scratch, end })
    }

    /// Records a graph: runs `body` once with a recorder that writes down. Nothing can be allocated in it, and only the
    /// bundle's buffers and the stream's scratch can be baked; the graph keeps their memory.
    ///
    /// Takes one graph of the plan's budget; [`forget`](Engine::forget) gives it back.
    ///
    /// # Errors
    /// [`RecordError`], with the body's own error if that failed. The engine is as it was.
    pub fn record<B: Bundle, E, F>(
        &mut self,
        stream: &mut Stream<B::Space>,
        body: F,
    ) -> Result<Graph<B>, RecordError<E>>
    where
        Ph: OwnsBuffers<B>,
        F: for<'s, 'b> FnOnce(&mut Step<'s, B, Captured<'b, B::Space>>) -> Result<(), E>,
    {
        if stream.lane().engine() != self.core.engine {
            return Err(RecordError::ForeignStream);
        }
        let plan = self.core.plan;
        let Owning { bundle, graphs } = self.phase.parts(Token(()));
        if !graphs.has_room() {
            return Err(RecordError::BudgetExhausted { planned: graphs.planned });
        }
        let mut keep = Keep::default();
        bundle.keep(&mut keep);
        let capture = Recorder::<Captured<'_, B::Space>>::writing_down(stream.lane().clone());
        let mark = Mark::new(stream.lane().id(), self.core.clock);
        let end = End { lane: None, clock: 0, graphs: None, stack: None, plan };
        let scratch = stream.scratch.frame(mark);
        let mut step = Step { buffers: bundle.view(&Cx::new(mark)), on: &capture, scratch, end };
        let recorded = body(&mut step);
        drop(step);
        recorded.map_err(RecordError::Body)?;
        let (lane, _scratch) = (stream.lane().id(), stream.scratch.clone());
        let tape = capture.into_tape();
        let mut launches = || tape.iter().try_for_each(|op| op());
        let baked = stream.lane().queue().bake(&mut launches).map_err(RecordError::Bake)?;
        let graph = GraphExec { lane, baked, tape, _regions: keep.0, _scratch };
        let (slot, generation) = graphs.insert(graph);
        Ok(Graph { plan, slot, generation, bundle: PhantomData })
    }

    /// Drops a recorded graph and gives its place in the plan's budget back. A name that is stale already is ignored.
    pub fn forget<B: Bundle>(&mut self, graph: Graph<B>) -> Result<(), QueueError>
    where
        Ph: OwnsBuffers<B>,
    {
        if graph.plan == self.core.plan {
            // A device may still be replaying it.
            self.lanes.drain()?;
            self.phase.parts(Token(())).graphs.remove(graph.slot, graph.generation);
        }
        Ok(())
    }
}

impl<B: Bundle, P: Place<Space = B::Space>> Step<'_, B, P> {
    /// Runs a recorded graph, in order with the launches of this step. No view is in use meanwhile: `&mut self`.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn replay(&mut self, graph: Graph<B>) -> Result<(), ReplayError>
    where
        P: OutsideCapture,
    {
        let (Some(lane), Some(graphs)) = (self.end.lane, &mut self.end.graphs) else {
            return Err(ReplayError::StaleGraph);
        };
        if graph.plan != self.end.plan {
            return Err(ReplayError::StaleGraph);
        }
        if !self.end.stack.is_some_and(|stack| self.scratch.is_whole(stack)) {
            return Err(ReplayError::ScratchInUse);
        }
        if !lane.is_open() {
            return Err(ReplayError::Launch(LaunchError::StepEnded));
        }
        graphs.replay(graph.slot, graph.generation, lane)
    }

    /// Ends the step. The fence stands behind everything launched in it.
    ///
    /// # Errors
    /// [`LaunchError::Device`] when the device failed.
    pub fn finish(self) -> Result<Fence, LaunchError>
    where
        P: OutsideCapture,
    {
        self.end.finish()
    }
}
