//! Recorded graphs: who owns them, and their names.

use std::{marker::PhantomData, sync::Arc};

use super::{LaunchError, ScratchStack, lane::Lane, recorder::Op};
use crate::backend::{Baked, Region};

/// The name of a recorded graph of bundle `B`. A name only: the engine owns the graph, and a stale one is a typed error.
pub struct Graph<B> {
    pub(crate) plan: u64,
    pub(crate) slot: usize,
    pub(crate) generation: u64,
    pub(crate) bundle: PhantomData<fn() -> B>,
}

impl<B> Clone for Graph<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B> Copy for Graph<B> {}

/// A recorded graph, with the memory that it baked in: the bundle's regions and its stream's scratch.
pub(crate) struct GraphExec {
    pub(crate) lane: u32,
    /// What the device made of the tape. Goes before the tape, which keeps what the launches need.
    pub(crate) baked: Option<Box<dyn Baked>>,
    pub(crate) tape: Vec<Op>,
    pub(crate) _regions: Vec<Arc<Region>>,
    pub(crate) _scratch: Arc<ScratchStack>,
}

/// The graphs of one model, in slots that are used again.
#[derive(Default)]
pub(crate) struct GraphStore {
    slots: Vec<(u64, Option<GraphExec>)>,
    /// What the plan charged.
    pub(crate) planned: u32,
}

impl GraphStore {
    pub(crate) fn new(planned: u32) -> Self {
        GraphStore { slots: Vec::new(), planned }
    }

    pub(crate) fn live(&self) -> u32 {
        self.slots.iter().filter(|(_, graph)| graph.is_some()).count() as u32
    }

    pub(crate) fn has_room(&self) -> bool {
        self.live() < self.planned
    }

    /// Slot and generation of a new graph.
    pub(crate) fn insert(&mut self, graph: GraphExec) -> (usize, u64) {
        match self.slots.iter_mut().enumerate().find(|(_, (_, graph))| graph.is_none()) {
            Some((slot, (generation, free))) => {
                *generation += 1;
                *free = Some(graph);
                (slot, *generation)
            }
            None => {
                self.slots.push((0, Some(graph)));
                (self.slots.len() - 1, 0)
            }
        }
    }

    fn slot(&mut self, slot: usize, generation: u64) -> Option<&mut Option<GraphExec>> {
        self.slots.get_mut(slot).filter(|(current, _)| *current == generation).map(|(_, graph)| graph)
    }

    pub(crate) fn remove(&mut self, slot: usize, generation: u64) -> Option<GraphExec> {
        self.slot(slot, generation)?.take()
    }

    pub(crate) fn replay(&mut self, slot: usize, generation: u64, lane: &Lane) -> Result<(), ReplayError> {
        let graph = self.slot(slot, generation).and_then(|graph| graph.as_ref()).ok_or(ReplayError::StaleGraph)?;
        if graph.lane != lane.id() {
            return Err(ReplayError::WrongStream { recorded: graph.lane, replayed: lane.id() });
        }
        let _running = lane.replay().ok_or(ReplayError::Launch(LaunchError::Nested))?;
        match &graph.baked {
            // SAFETY: it was baked on this lane. The buffers are the bundle's and the stream's scratch, whose regions the
            // graph keeps; the replay borrows the engine mutably.
            Some(baked) => unsafe { baked.launch(lane.queue()) }.map_err(|error| ReplayError::Launch(error.into())),
            None => graph.tape.iter().try_for_each(|op| op()).map_err(ReplayError::Launch),
        }
    }
}

/// A graph was not recorded. The engine is as it was. `E` is the error of the capture's body.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError<E = LaunchError> {
    /// The plan's graph budget is used up.
    #[error("all {planned} graphs that the plan charged are recorded: `forget` one, or plan more")]
    BudgetExhausted {
        /// How many the plan charged.
        planned: u32,
    },
    /// The stream belongs to another engine.
    #[error("the stream was opened by another engine: record on a stream of this one")]
    ForeignStream,
    /// The body failed; the capture was closed and nothing was recorded.
    #[error("in the capture: {0}")]
    Body(E),
    /// The device did not bake the launches that the body wrote down; its capture was closed and nothing was recorded.
    #[error("the graph could not be baked: {0}")]
    Bake(LaunchError),
}

/// A graph was not replayed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It was recorded by another engine, for a model that has ended, or it was forgotten.
    #[error("the graph belongs to another engine, to a model that has ended, or was forgotten: record it again")]
    StaleGraph,
    /// It was recorded on another stream, whose scratch it uses.
    #[error("the graph was recorded on stream {recorded} and is replayed on stream {replayed}: use the first")]
    WrongStream {
        /// The stream it was recorded on.
        recorded: u32,
        /// The stream of the step.
        replayed: u32,
    },
    /// The step has taken scratch, which the graph uses too.
    #[error(
        "this step has taken scratch, where the graph's own scratch lies: take it from `step.scratch.nested()`, and let it go before the replay"
    )]
    ScratchInUse,
    /// One of its operations failed.
    #[error("in the replay: {0}")]
    Launch(LaunchError),
}
