//! Loading: declaring, keeping, and the plan.

use std::fmt;

use super::{Engine, Loading, MakesDeclarations, Phase, Planning, Token, Uncarved};
use crate::{
    backend::{AcquireError, Device},
    bundle::Bundle,
    layout::SizeError,
    line::{Declared, Declarer, Grants, Line, Want, price},
    owned::Keep,
    part::{Declare, Survives},
    plan::{self, Amount, Config, Demand, Limits, Locks, MemoryPlan, PlanFailure, PlanInput, Reprice, plan_memory},
    record::GraphStore,
    units::{Bytes, Overflow},
};
use std::sync::Arc;

/// What a plan is asked for: the machine's limits, the operator's configuration, and what makes levers possible.
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The machine. `held` is filled in by the engine.
    pub limits: Limits,
    /// What the operator asks for; only levers and reports look at it.
    pub config: Config,
    /// What the operator insists on.
    pub locks: Locks,
    /// What would be declared under another configuration, for the levers of a refusal.
    pub reprice: Option<Reprice<'a>>,
}

impl From<Limits> for PlanRequest<'_> {
    fn from(limits: Limits) -> Self {
        PlanRequest { limits, config: Config::default(), locks: Locks::default(), reprice: None }
    }
}

impl Engine<Loading> {
    /// Opens another device, in another memory space.
    ///
    /// # Errors
    /// The engine, when it has a device of that space already: what lives on that one would be held by nobody's books.
    pub fn with(mut self, device: &Device) -> Result<Self, Box<Self>> {
        if self.core.device(device.space()).is_some() {
            return Err(Box::new(self));
        }
        self.core.devices.push(device.0.clone());
        Ok(self)
    }
}

impl<Ph: Phase> Engine<Ph> {
    /// Says that a storage, pool, page table or stream of this size will be wanted. Prices it; acquires nothing. A size that
    /// overflows or is zero is reported by `plan`, with its field.
    pub fn declare<T: Declare>(&mut self, spec: T::Spec) -> Line<T>
    where
        Ph: MakesDeclarations,
    {
        Declarer { plan: self.core.plan, declared: &mut self.phase.loading(Token(())).declared }.line(spec)
    }

    /// Declares every part of a bundle.
    pub fn declare_bundle<B: Bundle>(&mut self, spec: B::Spec) -> B::Lines
    where
        Ph: MakesDeclarations,
    {
        let declared = &mut self.phase.loading(Token(())).declared;
        B::declare(spec, &mut Declarer { plan: self.core.plan, declared })
    }

    /// Makes a line of a part that survived the previous model. Costs nothing new; its addresses stay.
    ///
    /// # Errors
    /// [`KeepError`] with the part: it is not what `spec` would carve, or lives on a device of another engine.
    pub fn keep<T: Survives>(&mut self, part: T, spec: &T::Spec) -> Result<Line<T>, KeepError<T>>
    where
        Ph: MakesDeclarations,
    {
        let mut keep = Keep::default();
        part.keep(&mut keep);
        let ours = |device: &Arc<_>| self.core.devices.iter().any(|known| Arc::ptr_eq(known, device));
        if !keep.0.iter().all(|region| ours(region.device())) {
            return Err(KeepError { part, cause: KeepCause::ForeignDevice });
        }
        match T::price(spec, &mut |_| {}) {
            Ok(priced) if part.is_what_was_priced(&priced) => {
                let loading = self.phase.loading(Token(()));
                loading.growth = loading.growth.plus(part.growth()).unwrap_or(Bytes::MAX);
                Ok(Line { plan: self.core.plan, want: Want::Kept(part) })
            }
            Ok(_) => Err(KeepError { part, cause: KeepCause::OtherShape { name: T::LABEL } }),
            Err(error) => Err(KeepError { part, cause: KeepCause::Size(error) }),
        }
    }

    /// Changes the size of a declared line, after a refusal.
    ///
    /// # Errors
    /// The size, when the line was declared to another engine or model, or is one that was kept.
    pub fn revise<T: Declare>(&mut self, line: &mut Line<T>, spec: T::Spec) -> Result<(), T::Spec>
    where
        Ph: MakesDeclarations,
    {
        let index = match &line.want {
            Want::New { index, .. } | Want::Unsized { index } if line.plan == self.core.plan => *index,
            _ => return Err(spec),
        };
        let (declared, want) = price::<T>(&spec, index);
        self.phase.loading(Token(())).declared[index] = declared;
        line.want = want;
        Ok(())
    }

    /// Accepts or refuses everything declared so far, and opens the arenas of an accepted plan at exactly the planned sizes.
    ///
    /// # Errors
    /// [`Refused`], with the report and the engine as it was. The lines stay good; revise them and plan again.
    pub fn plan<'a>(self, request: impl Into<PlanRequest<'a>>) -> Result<Engine<Planning>, Refused>
    where
        Ph: MakesDeclarations,
    {
        let engine = self.into_phase(|phase| phase.into_loading(Token(())));
        match engine.accept(&request.into()) {
            Ok((plan, grants, planned)) => {
                let graphs = GraphStore::new(planned);
                Ok(engine.into_phase(|_| Planning { owned: Uncarved(()), graphs, plan, grants }))
            }
            Err(report) => Err(Refused { report, engine: Box::new(engine) }),
        }
    }
}

impl Engine<Loading> {
    /// The plan that [`plan`](Engine::plan) would accept for what was declared so far. Opens nothing: for an operator who only
    /// asks, and for a search of what fits.
    ///
    /// ```
    /// use memtier::plan::Limits;
    /// use memtier::{Bytes, Device, Engine, Host, HostBackend, Space, Stream, StreamSpec};
    ///
    /// let device = Device::new(HostBackend::new(), Bytes::mib(1));
    /// let mut engine = Engine::open(&device);
    /// let _stream = engine.declare::<Stream<Host>>(StreamSpec { scratch: Bytes::new(5000) });
    /// // 5000 bytes, and what they leave of their last page.
    /// assert_eq!(engine.preview(Limits::new(Host::NAME, Bytes::mib(1)))?.total(), Bytes::new(8192));
    /// assert!(engine.preview(Limits::new(Host::NAME, Bytes::new(8191))).is_err());
    /// assert_eq!(device.report().live, Bytes::ZERO);
    /// # Ok::<(), memtier::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// As [`plan`](Engine::plan).
    pub fn preview<'a>(&self, request: impl Into<PlanRequest<'a>>) -> Result<MemoryPlan, PlanError> {
        self.weigh(&request.into()).map(|(plan, _)| plan)
    }

    fn accept(&self, request: &PlanRequest<'_>) -> Result<(MemoryPlan, Grants, u32), PlanError> {
        let (plan, counts) = self.weigh(request)?;
        let grants = Grants::open(&counts, &plan, &self.core.devices, &self.core.phase)?;
        Ok((plan, grants, request.limits.graphs))
    }

    /// Plans what was declared; beside the plan, how many demands each declaration has.
    fn weigh(&self, request: &PlanRequest<'_>) -> Result<(MemoryPlan, Vec<usize>), PlanError> {
        let mut demands = Vec::new();
        let mut counts = Vec::new();
        for Declared { demands: declared } in &self.phase.declared {
            let declared = declared.as_ref().map_err(|error| PlanError::Size(error.clone()))?;
            demands.extend_from_slice(declared);
            counts.push(declared.len());
        }
        if let Some(orphan) = demands.iter().find(|demand| self.core.device(demand.space).is_none()) {
            return Err(PlanError::NoDevice { name: orphan.name.to_string(), space: orphan.space });
        }
        demands.extend(self.rounding(&demands));
        let mut limits = request.limits;
        limits.held = self.held(limits.space)?.plus(limits.held).map_err(PlanError::Total)?;
        // A lever is true to the page: what is declared under another configuration is rounded as this one is.
        let reprice = |config: &Config| {
            let Some(reprice) = request.reprice else { return Err(Overflow) };
            let mut demands = reprice(config)?;
            demands.extend(self.rounding(&demands));
            Ok(demands)
        };
        let input = PlanInput {
            limits,
            config: request.config,
            locks: request.locks,
            demands: &demands,
            reprice: request.reprice.map(|_| &reprice as Reprice<'_>),
        };
        Ok((plan_memory(&input)?, counts))
    }

    /// Devices commit whole pages (2 MiB on CUDA): what the end of each arena, stack and pool leaves of its last one.
    fn rounding(&self, demands: &[Demand]) -> Option<Demand> {
        let mut total = Bytes::ZERO;
        let mut space = None;
        let mut add = |rounding: Bytes, of: &'static str| {
            if !rounding.is_zero() {
                total = total.plus(rounding).unwrap_or(Bytes::MAX);
                space = Some(of);
            }
        };
        for device in &self.core.devices {
            let rest = |bytes: Bytes| device.rounded(bytes).beyond(bytes);
            let here = || demands.iter().filter(|demand| demand.space == device.space());
            for tier in [plan::Tier::EnginePersistent, plan::Tier::ModelResident] {
                let arena = here().filter(|demand| demand.tier == tier).filter_map(|demand| demand.amount.least().ok());
                add(rest(Bytes::sum(arena).unwrap_or(Bytes::MAX)), device.space());
            }
            for demand in here() {
                match (demand.tier, demand.amount) {
                    (plan::Tier::ForwardScratch, Amount::Bytes(bytes)) => add(rest(bytes), device.space()),
                    // Of a pool that may get fewer blocks, or commits some at a time, the last page can be cut anywhere.
                    (_, Amount::Blocks { block, floor, most, .. }) => {
                        let all = block.times(most.count()).unwrap_or(Bytes::MAX);
                        let exact = floor == most || rest(block).is_zero();
                        add(if exact { rest(all) } else { device.rounded(Bytes::new(1)) }, device.space());
                    }
                    _ => {}
                }
            }
        }
        space.map(|space| Demand::bytes("page rounding", plan::Tier::Reserve, space, total))
    }

    /// What lives on the device already: survivors with the growth they may still take, streams, other engines.
    fn held(&self, space: &str) -> Result<Bytes, PlanError> {
        let live = self.core.device(space).map_or(Bytes::ZERO, |device| device.live());
        live.plus(self.phase.growth).map_err(PlanError::Total)
    }

    /// What was declared so far, priced: what a `reprice` function of the same configuration would return.
    ///
    /// # Errors
    /// [`SizeError`] of the first declaration that has no size.
    pub fn demands(&self) -> Result<Vec<Demand>, SizeError> {
        let mut demands = Vec::new();
        for Declared { demands: declared } in &self.phase.declared {
            demands.extend_from_slice(declared.as_ref().map_err(Clone::clone)?);
        }
        Ok(demands)
    }
}

/// Why no plan was accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It does not fit. The report is itemised and names what to change.
    #[error(transparent)]
    DoesNotFit(#[from] PlanFailure),
    /// Something that was declared has no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// What lives on the device already leaves 64 bits.
    #[error("what is held already: {0}")]
    Total(Overflow),
    /// A declaration wants memory in a space for which no device was opened.
    #[error("`{name}` wants `{space}` memory and no such device was opened: add it with `engine.with(&device)`")]
    NoDevice {
        /// The declaration.
        name: String,
        /// The space.
        space: &'static str,
    },
    /// The plan fits, but the device refused a size that it accepted.
    #[error("the plan fits, but {0}")]
    Acquire(#[from] AcquireError),
}

/// A refused plan: the report, and the engine as it was. The lines stay good; revise them and plan again.
///
/// `{}` is a line, `{:?}` the whole report of what does not fit: what was asked, by how much it is over, and what to change.
#[derive(thiserror::Error)]
#[error("{report}")]
pub struct Refused {
    /// What is wrong.
    #[source]
    pub report: PlanError,
    /// The engine, still loading.
    pub engine: Box<Engine<Loading>>,
}

// What a `main` that returns it prints: all that the operator needs.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.report {
            PlanError::DoesNotFit(failure) => f.write_str(&failure.report()),
            report => fmt::Display::fmt(report, f),
        }
    }
}

/// A part was not kept; it comes back.
#[derive(thiserror::Error)]
#[error("{cause}")]
pub struct KeepError<T> {
    /// The part, as it was.
    pub part: T,
    /// Why not.
    #[source]
    pub cause: KeepCause,
}

/// Why a part was not kept.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepCause {
    /// It has another shape than the next model wants.
    #[error(
        "`{name}` of the previous model has another shape than the next one wants: drop it and `declare` a new one"
    )]
    OtherShape {
        /// The part.
        name: &'static str,
    },
    /// It lives on a device that this engine did not open.
    #[error("the part lives on a device of another engine: keep it in the engine whose model it survived")]
    ForeignDevice,
    /// The next model's size is none.
    #[error(transparent)]
    Size(SizeError),
}

impl<T> fmt::Debug for KeepError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}
