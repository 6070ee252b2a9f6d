//! The engine and its three phases.
//!
//! ```text
//! Loading ── plan ──> Planning ── carve ──> Planning<B> ── serve ──> Serving<B> ── drain ──> Serving<Drained<B>>
//!    ^  \── Refused (gives Loading back)                               ^               │          │
//!    │                                                                 └── resume ─────│──────────┤
//!    └──────────────────────── (Loading, kept) <── end_model ──────────────────────────┘──────────┘
//! ```
//!
//! Every method is there in every phase, with a bound that says in which ones it makes sense: a call in the wrong phase is
//! then "this cannot be done here, because", not "no such method".

mod loading;
mod overlap;
mod planning;
mod report;
mod serving;
mod step;

pub use loading::{KeepCause, KeepError, PlanError, PlanRequest, Refused};
pub use overlap::{Lend, Lent, Overlap, Shared, Side};
pub use planning::{CarveFailed, Load, Pinned, PinnedSpec, Staging, StagingBuf, StagingError};
pub use report::{MemoryReport, PoolReport, TierReport};
pub use serving::{Busy, DrainError};
pub use step::{Step, StepError};

use std::sync::{Arc, Weak};

use crate::{
    backend::{Device, DeviceCore, PhaseCell, PhaseName, QueueError},
    bundle::Bundle,
    generated::Gates,
    line::{Declared, Grants},
    plan::MemoryPlan,
    pool::StepStream,
    record::{GraphStore, Lane, ScratchStack},
    sealed::Sealed,
    units::Bytes,
};

/// An inference engine's memory, in phase `Ph`: [`Loading`], [`Planning`] or [`Serving`].
///
/// `'static`, `Send` and `Sync` whatever the bundle: it sits in an `Arc`, crosses threads and `.await`.
#[must_use = "dropping the engine releases everything it owns"]
pub struct Engine<Ph: Phase> {
    // Dropped in this order: the device finishes, then the phase releases what it owns.
    lanes: Lanes,
    phase: Ph,
    core: Core,
}

struct Core {
    /// Never changes: streams know their engine by it.
    engine: u64,
    /// Changes with every plan, so that lines and graphs of an earlier model are recognised.
    plan: u64,
    devices: Vec<Arc<DeviceCore>>,
    phase: Arc<PhaseCell>,
    /// The number of the latest step, over all streams.
    clock: u64,
    /// The scratch stacks of its streams, for reports.
    scratch: Vec<Weak<ScratchStack>>,
}

impl Core {
    fn device(&self, space: &str) -> Option<&Arc<DeviceCore>> {
        self.devices.iter().find(|device| device.space() == space)
    }
}

/// Every stream that was handed views.
#[derive(Default)]
struct Lanes(Vec<Arc<Lane>>);

impl Lanes {
    /// Orders a step or a load behind the previous ones, also when they were on other streams: the borrows of a step end when
    /// it is launched, not when the device is done.
    fn enter<B: Bundle>(&mut self, lane: &Arc<Lane>, step: u64, bundle: &B) -> Result<(), QueueError> {
        let others = self.0.iter().filter(|known| !Arc::ptr_eq(known, lane) && !known.is_quiet());
        others.into_iter().try_for_each(|other| other.drain())?;
        self.introduce(lane, bundle);
        lane.begin(step)?;
        let mut prepared = Ok(());
        bundle.gates(&mut Gates(&mut |part| {
            if prepared.is_ok() {
                prepared = part.prepare(StepStream::new(lane));
            }
        }));
        prepared
    }

    /// Tells the pools of a stream that will be handed their addresses.
    fn introduce<B: Bundle>(&mut self, lane: &Arc<Lane>, bundle: &B) {
        if self.0.iter().any(|known| Arc::ptr_eq(known, lane)) {
            return;
        }
        self.0.push(lane.clone());
        bundle.gates(&mut Gates(&mut |pool| {
            if let Some(core) = pool.core() {
                core.seen_by(lane);
            }
        }));
    }

    fn drain(&self) -> Result<(), QueueError> {
        self.0.iter().try_for_each(|lane| lane.drain())
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // A device that fails here has nothing left that could be corrupted by what it owns: the memory goes with it.
        let _ = self.drain();
    }
}

impl<Ph: Phase> Engine<Ph> {
    /// The one way from phase to phase.
    fn into_phase<Next: Phase>(self, next: impl FnOnce(Ph) -> Next) -> Engine<Next> {
        let Engine { lanes, phase, core } = self;
        core.phase.set(Next::NAME);
        Engine { lanes, phase: next(phase), core }
    }
}

/// The device is open, nothing is carved; the engine declares what it will want.
pub struct Loading {
    /// What was declared, each with its price or the reason why it has none.
    declared: Vec<Declared>,
    /// What kept pools may still commit.
    growth: Bytes,
}

/// A plan was accepted and its arenas are open. `Planning` has not carved them yet; `Planning<B>` owns the bundle, takes
/// uploads and records graphs.
pub struct Planning<B = Uncarved> {
    // Graphs go before the buffers that they bake.
    graphs: GraphStore,
    owned: B,
    plan: MemoryPlan,
    grants: Grants,
}

/// The memory map is frozen. `Serving<Drained<B>>` is the same with no block out and nothing in flight.
pub struct Serving<B> {
    // Graphs go before the buffers that they bake.
    graphs: GraphStore,
    owned: B,
    plan: MemoryPlan,
    /// Lines that were planned and never carved, by name.
    unclaimed: Vec<String>,
}

/// In `Planning`: nothing is carved yet.
pub struct Uncarved(());

/// In `Serving`: the bundle, with no block out and nothing in flight. No request can get a block.
pub struct Drained<B>(B);

/// One of the three phases. Closed.
pub trait Phase: Sealed + Sized + Send + Sync {
    #[doc(hidden)]
    const NAME: PhaseName;
}
impl Sealed for Loading {}
impl Phase for Loading {
    const NAME: PhaseName = PhaseName::Loading;
}
impl<B> Sealed for Planning<B> {}
impl<B: Send + Sync> Phase for Planning<B> {
    const NAME: PhaseName = PhaseName::Planning;
}
impl<B> Sealed for Serving<B> {}
impl<B: Send + Sync> Phase for Serving<B> {
    const NAME: PhaseName = PhaseName::Serving;
}

// ------------------------------------------------------------------------------------- what each phase can do
//
//                       Loading   Planning   Planning<B>   Serving<B>   Serving<Drained<B>>
//   MakesDeclarations      x
//   CarvesStorage                    x
//   OpensMemory                      x            x
//   StagesUploads                                 x
//   StartsServing                                 x
//   OwnsBuffers                                   x             x
//   Serves                                                      x
//   EndsModel                                                                    x

/// An argument that only this crate can make. It closes the traits below: a downstream crate could otherwise implement them
/// for `Serving<ItsOwnBundle>` and reach what a phase must not give.
#[doc(hidden)]
pub struct Token(());

/// Phases in which the engine says what it will want.
#[diagnostic::on_unimplemented(
    message = "nothing can be declared or planned in phase `{Self}`",
    label = "the plan is already accepted",
    note = "declare every storage, pool and stream while `Loading`; the planner must price a line before it can be carved",
    note = "while `Serving` the map is frozen: extend a ticket, take scratch, or end the model and load again"
)]
pub trait MakesDeclarations: Phase {
    #[doc(hidden)]
    fn loading(&mut self, token: Token) -> &mut Loading;
    #[doc(hidden)]
    fn into_loading(self, token: Token) -> Loading;
}

/// Phases in which plan lines become memory.
#[diagnostic::on_unimplemented(
    message = "storage cannot be carved in phase `{Self}`",
    label = "wrong phase for carving",
    note = "the order is `declare` (Loading), `plan`, `carve` (Planning), `serve`",
    note = "an engine carves one bundle, once: a second model has its parts in the same bundle, or an engine of its own on the same `Device`",
    note = "while `Serving` the map is frozen: extend a ticket, take scratch, or end the model and load again"
)]
pub trait CarvesStorage: Phase {
    #[doc(hidden)]
    fn into_planning(self, token: Token) -> Planning;
}

/// Phases in which streams and pinned memory are opened.
#[diagnostic::on_unimplemented(
    message = "memory cannot be acquired in phase `{Self}`",
    label = "acquires memory",
    note = "streams, their scratch and pinned buffers are opened while `Planning`, from lines declared while `Loading`",
    note = "while `Serving` the map is frozen: extend a ticket, take scratch, or end the model and load again"
)]
pub trait OpensMemory: Phase {
    #[doc(hidden)]
    fn open(&mut self, token: Token) -> Opened<'_>;
}

/// The grants of a plan, lent to a method of the engine.
#[doc(hidden)]
pub struct Opened<'p>(&'p mut Grants);

/// The phase in which host staging exists and weights are written.
#[diagnostic::on_unimplemented(
    message = "nothing can be loaded in phase `{Self}`",
    label = "no bundle to load into, or already serving",
    note = "uploads and their host staging belong to `Planning`, between `carve` and `serve`"
)]
pub trait StagesUploads<B>: Phase {
    #[doc(hidden)]
    fn target(&mut self, token: Token) -> &mut B;
}

/// The phase from which serving starts.
#[diagnostic::on_unimplemented(
    message = "serving cannot start from phase `{Self}`",
    label = "not a carved plan",
    note = "the order is `declare` (Loading), `plan`, `carve` (Planning), `serve`"
)]
pub trait StartsServing<B>: Phase {
    #[doc(hidden)]
    fn into_carved(self, token: Token) -> Planning<B>;
}

/// Phases in which the engine owns a bundle: steps run, graphs are recorded and replayed.
#[diagnostic::on_unimplemented(
    message = "an engine in phase `{Self}` owns no buffers",
    label = "no bundle in this phase",
    note = "a bundle exists from `carve` to `end_model`; graphs go with the model that they were recorded for",
    note = "a `Drained` engine runs no steps, replays and requests: `resume` it, or end the model"
)]
pub trait OwnsBuffers<B>: Phase {
    #[doc(hidden)]
    fn parts(&mut self, token: Token) -> Owning<'_, B>;
}

/// The bundle and its graphs, lent to a method of the engine.
#[doc(hidden)]
pub struct Owning<'p, B> {
    bundle: &'p mut B,
    graphs: &'p mut GraphStore,
}

/// The phase that requests see.
#[diagnostic::on_unimplemented(
    message = "an engine in phase `{Self}` is not serving",
    label = "needs `Serving`",
    note = "requests (`bundle`) and `drain` belong to `Serving`; while `Planning`, use `load` and `step`",
    note = "a `Drained` engine runs no steps, replays and requests: `resume` it, or end the model"
)]
pub trait Serves<B>: Phase {
    #[doc(hidden)]
    fn bundle(&self, token: Token) -> &B;
    #[doc(hidden)]
    fn into_serving(self, token: Token) -> Serving<B>;
}

/// The phase in which a model can end.
#[diagnostic::on_unimplemented(
    message = "a model cannot end in phase `{Self}`",
    label = "not drained: requests may hold blocks, and launches may be in flight",
    note = "`engine.drain()` waits for every stream and checks that every pool got every block back; call `end_model` on what \
            it returns"
)]
pub trait EndsModel<B>: Phase {
    #[doc(hidden)]
    fn into_drained(self, token: Token) -> Serving<Drained<B>>;
}

impl MakesDeclarations for Loading {
    fn loading(&mut self, _: Token) -> &mut Loading {
        self
    }

    fn into_loading(self, _: Token) -> Loading {
        self
    }
}
impl CarvesStorage for Planning {
    fn into_planning(self, _: Token) -> Planning {
        self
    }
}
impl<B: Send + Sync> OpensMemory for Planning<B> {
    fn open(&mut self, _: Token) -> Opened<'_> {
        Opened(&mut self.grants)
    }
}
impl<B: Bundle> StagesUploads<B> for Planning<B> {
    fn target(&mut self, _: Token) -> &mut B {
        &mut self.owned
    }
}
impl<B: Bundle> StartsServing<B> for Planning<B> {
    fn into_carved(self, _: Token) -> Planning<B> {
        self
    }
}
impl<B: Bundle> OwnsBuffers<B> for Planning<B> {
    fn parts(&mut self, _: Token) -> Owning<'_, B> {
        Owning { bundle: &mut self.owned, graphs: &mut self.graphs }
    }
}
impl<B: Bundle> OwnsBuffers<B> for Serving<B> {
    fn parts(&mut self, _: Token) -> Owning<'_, B> {
        Owning { bundle: &mut self.owned, graphs: &mut self.graphs }
    }
}
impl<B: Bundle> Serves<B> for Serving<B> {
    fn bundle(&self, _: Token) -> &B {
        &self.owned
    }

    fn into_serving(self, _: Token) -> Serving<B> {
        self
    }
}
/// Never implemented. With only the impls above, the compiler takes `Drained<B>` for the bundle of a drained engine and reports each
/// place where it is none; with a second way that is not open either, it says once that the phase is the wrong one.
#[doc(hidden)]
pub trait Resumed {}
impl<B: Bundle> OwnsBuffers<B> for Serving<Drained<B>>
where
    Drained<B>: Resumed,
{
    fn parts(&mut self, _: Token) -> Owning<'_, B> {
        Owning { bundle: &mut self.owned.0, graphs: &mut self.graphs }
    }
}
impl<B: Bundle> Serves<B> for Serving<Drained<B>>
where
    Drained<B>: Resumed,
{
    fn bundle(&self, _: Token) -> &B {
        &self.owned.0
    }

    fn into_serving(self, _: Token) -> Serving<B> {
        let Serving { graphs, owned, plan, unclaimed } = self;
        Serving { graphs, owned: owned.0, plan, unclaimed }
    }
}
impl<B: Bundle> EndsModel<B> for Serving<Drained<B>> {
    fn into_drained(self, _: Token) -> Serving<Drained<B>> {
        self
    }
}

// The bundle is a parameter of these traits, not an associated type: with `Ph::Bundle` in its return type, a method of the
// wrong phase is reported as "exists, but its trait bounds were not satisfied" (E0599), and our sentence is lost.

impl Engine<Loading> {
    /// Opens a device.
    pub fn open(device: &Device) -> Self {
        let core = Core {
            engine: crate::next_id(),
            plan: crate::next_id(),
            devices: vec![device.0.clone()],
            phase: Arc::new(PhaseCell::new()),
            clock: 0,
            scratch: Vec::new(),
        };
        Engine { lanes: Lanes::default(), phase: Loading { declared: Vec::new(), growth: Bytes::ZERO }, core }
    }
}
