//! Which layers run on the device: decided here, once, and read by the loader, the builder of the bundles and the forward
//! pass alike.
//!
//! The engine has a device and a host. Where the two are the same machine, two host backends stand in, each with a budget
//! of its own. The first layers run on the device and the rest on the host, as memtier's offload plan says; embedding,
//! last norm and head are on the host, unless every layer is on the device.

use std::str::FromStr;

use memtier::plan::offload::OffloadPlan;
use memtier::plan::{Config, Demand, Limits, Locks, Reprice, ReserveSource};
use memtier::{
    Bundle, Bytes, Device, Engine, Host, HostBackend, Layers, Line, Loading, MemoryPlan, Overflow, PlanError,
    PlanRequest, Stream,
};

use crate::{
    EngineError,
    arch::Arch,
    compute::Compute,
    config::Settings,
    model::{self, Model},
    policy, reserve,
};

/// How many layers the operator wants on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpuLayers {
    /// The first so many; more than there are is all of them.
    Count(u64),
    /// As many as its budget holds.
    Auto,
}

impl FromStr for GpuLayers {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(GpuLayers::Auto) } else { text.parse().map(GpuLayers::Count) }
    }
}

/// A run of layers and the memory it is planned for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Part {
    /// Its name in reports.
    pub(crate) name: String,
    /// Its layers.
    pub(crate) arch: Arch,
    /// The most that it may take.
    pub(crate) budget: Bytes,
    /// What the process was seen to take beside its plan.
    pub(crate) reserve: Option<Bytes>,
    /// What a driver had taken when the device was open: charged where the reserve is, so that both together are all there is.
    pub(crate) context: Bytes,
    /// What nobody has taken of the device, where that is known: a plan that wants more is refused.
    pub(crate) free: Option<Bytes>,
    /// What was taken since the device was open, by memtier or by libraries.
    pub(crate) taken: Bytes,
    /// Whether it is on the device, so that fewer layers make it smaller.
    on_device: bool,
}

/// Who runs what.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Assignment {
    /// Embedding, last layers and head: everything, where there is one part.
    pub(crate) main: Part,
    /// The first layers, where they are on a device and the rest is not.
    pub(crate) front: Option<Part>,
}

impl Assignment {
    /// Decides. Without [`Settings::gpu_layers`] there is one part, on the host.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] when a size overflows.
    pub(crate) fn decide(arch: &Arch, settings: &Settings) -> Result<Self, EngineError> {
        let all = arch.layers.len();
        let budget = policy::plan_budget(settings).0;
        let plan = match settings.gpu_layers {
            None => OffloadPlan::new(Layers::ZERO, Layers::new(all as u64)),
            Some(GpuLayers::Count(count)) => OffloadPlan::new(Layers::new(count), Layers::new(all as u64)),
            Some(GpuLayers::Auto) => OffloadPlan::longest(Layers::new(all as u64), |plan| {
                on_device(arch, plan, budget).is_ok_and(|part| part.fits(arch, settings))
            }),
        };
        let on_device = on_device(arch, plan, budget)?;
        let count = plan.gpu_layers().count() as usize;
        if plan.holds_outside() && settings.gpu_layers.is_some() {
            return Ok(Assignment { main: on_device, front: None });
        }
        let name = if count == 0 {
            "host".to_owned()
        } else {
            format!("host: layers {count} to {}, embedding, head", all - 1)
        };
        let host = if settings.gpu_layers.is_some() { settings.budget } else { budget };
        let arch = arch.part(count..all, true)?;
        let main = Part::new(name, arch, host, false);
        Ok(Assignment { main, front: (count > 0).then_some(on_device) })
    }

    /// Charges the main part with what the process takes beside its plan, as far as an earlier start has measured it.
    pub(crate) fn charge<S: Compute>(&mut self, ops: &S::Ops, arch: &Arch, settings: &Settings) {
        if !S::ON_HOST {
            S::NAME.clone_into(&mut self.main.name);
        }
        self.main.reserve = reserve::remembered::<S>(ops, arch, settings).0;
        if settings.reserve_file.is_some() {
            self.main.context = S::context(ops);
            self.main.taken = S::used(ops).unwrap_or_default().beyond(self.main.context);
        }
        self.main.free = S::free(ops);
    }
}

/// The device's part of a plan.
fn on_device(arch: &Arch, plan: OffloadPlan, budget: Bytes) -> Result<Part, EngineError> {
    let count = plan.gpu_layers().count() as usize;
    let name = match count {
        count if plan.holds_outside() => format!("device: all {count} layers"),
        1 => "device: layer 0".to_owned(),
        count => format!("device: layers 0 to {}", count.saturating_sub(1)),
    };
    let arch = arch.part(0..count, plan.holds_outside())?;
    Ok(Part::new(name, arch, budget, true))
}

impl Part {
    fn new(name: String, arch: Arch, budget: Bytes, on_device: bool) -> Self {
        let (context, taken) = (Bytes::ZERO, Bytes::ZERO);
        Part { name, arch, budget, reserve: None, context, free: None, taken, on_device }
    }

    /// What the part asks for under a configuration, of which `gpu_layers` decides the layers where it is on the device.
    ///
    /// # Errors
    /// [`Overflow`].
    pub(crate) fn demands<S: Compute>(&self, whole: &Arch, config: &Config) -> Result<Vec<Demand>, Overflow> {
        let all = Layers::new(whole.layers.len() as u64);
        match config.gpu_layers {
            Some(layers) if self.on_device => {
                let plan = OffloadPlan::new(layers, all);
                let count = plan.gpu_layers().count() as usize;
                if count == 0 && !plan.holds_outside() {
                    return Ok(Vec::new());
                }
                let part = whole.part(0..count, plan.holds_outside()).map_err(|_| Overflow)?;
                Ok(model::demands::<S>(&part, config)?)
            }
            _ => Ok(model::demands::<S>(&self.arch, config)?),
        }
    }

    /// The plan that is asked for. Layers are a lever on the device only.
    pub(crate) fn request<'a, S: Compute>(
        &self,
        whole: &Arch,
        settings: &Settings,
        reprice: Reprice<'a>,
    ) -> PlanRequest<'a> {
        let layers = self.on_device.then(|| Layers::new(self.arch.layers.len() as u64));
        // One graph more than are kept: the new one is recorded before the oldest goes. On the host a graph is a list on the
        // heap and takes nothing of the device.
        let limits =
            Limits { graphs: graphs(settings), graph_bytes: S::GRAPH_BYTES, ..Limits::new(S::NAME, self.budget) };
        let limits = Limits { context: self.context, ..limits };
        let limits = Limits { library_reserve: self.library_reserve::<S>(), ..limits };
        let limits = match self.reserve {
            None => limits,
            // What was measured has the graphs in it.
            Some(_) => Limits { library_source: ReserveSource::Remembered, graph_bytes: Bytes::ZERO, ..limits },
        };
        PlanRequest {
            limits,
            config: Config { gpu_layers: layers, ..settings.config(whole) },
            locks: Locks { gpu_layers: settings.locks.gpu_layers || !self.on_device, ..settings.locks },
            reprice: Some(reprice),
        }
    }

    /// What is planned for libraries: what was measured, or where the driver's context is charged and nothing was, a guess.
    fn library_reserve<S: Compute>(&self) -> Bytes {
        let guess = if self.context.is_zero() { Bytes::ZERO } else { S::ASSUMED_RESERVE };
        self.reserve.unwrap_or(guess)
    }

    /// Refuses a plan that the device has no room for, whatever its budget says. `kept` of it is memtier's already.
    ///
    /// # Errors
    /// [`EngineError::DeviceFull`].
    pub(crate) fn check_room<S: Compute>(&self, plan: &MemoryPlan, kept: Bytes) -> Result<(), EngineError> {
        let wanted = self.wanted(plan.total(), kept, self.library_reserve::<S>());
        match self.free {
            Some(free) if wanted > free => Err(EngineError::DeviceFull { wanted, free }),
            _ => Ok(()),
        }
    }

    /// What of a plan is not taken yet: its context is, what is kept is, and so are the kernels that are loaded, which are part of
    /// its `reserve`. More than that somebody else has taken.
    fn wanted(&self, total: Bytes, kept: Bytes, reserve: Bytes) -> Bytes {
        let libraries = self.taken.beyond(kept).min(reserve);
        total.beyond(self.context).beyond(kept).beyond(libraries)
    }

    /// A refusal of this part, by name where it is not the only one.
    pub(crate) fn refused(&self, settings: &Settings, source: PlanError) -> EngineError {
        match settings.gpu_layers {
            None => EngineError::Plan(source),
            Some(_) => EngineError::DevicePlan { device: self.name.clone(), source },
        }
    }

    /// An engine on the part's own device, with all that the part wants declared.
    ///
    /// # Errors
    /// [`EngineError::Size`].
    pub(crate) fn declare<S: Compute>(
        &self,
        whole: &Arch,
        settings: &Settings,
        device: Device,
    ) -> Result<Declared<S>, EngineError> {
        let mut engine = Engine::open(&device);
        let config = settings.config(whole);
        let lines = engine.declare_bundle::<Model<S>>(model::spec(&self.arch, &config));
        let stream = engine.declare(model::stream_spec::<S>(&self.arch, &config)?);
        Ok((device, engine, lines, stream))
    }

    /// The plan that the part would be carved from. Nothing is opened.
    ///
    /// # Errors
    /// [`EngineError::Plan`] or [`EngineError::DevicePlan`] when it does not fit, [`EngineError::DeviceFull`] when the device is too full.
    pub(crate) fn preview<S: Compute>(
        &self,
        whole: &Arch,
        settings: &Settings,
        device: Device,
    ) -> Result<MemoryPlan, EngineError> {
        let reprice = |config: &Config| self.demands::<S>(whole, config);
        let request = self.request::<S>(whole, settings, &reprice);
        let (_, engine, ..) = self.declare::<S>(whole, settings, device)?;
        let plan = engine.preview(request).map_err(|refused| self.refused(settings, refused))?;
        self.check_room::<S>(&plan, Bytes::ZERO).map(|()| plan)
    }

    fn fits(&self, whole: &Arch, settings: &Settings) -> bool {
        // Without levers: most prefixes that are tried do not fit, and nobody reads why.
        let request = PlanRequest { reprice: None, ..self.request::<Host>(whole, settings, &|_| Err(Overflow)) };
        let device = Device::new(HostBackend::new(), self.budget);
        self.declare::<Host>(whole, settings, device).is_ok_and(|(_, engine, ..)| engine.preview(request).is_ok())
    }
}

fn graphs(settings: &Settings) -> u32 {
    if settings.graphs == 0 { 0 } else { u32::try_from(settings.graphs + 1).unwrap_or(u32::MAX) }
}

/// A device, its engine before the plan, and the names of what was declared.
pub(crate) type Declared<S> = (Device, Engine<Loading>, <Model<S> as Bundle>::Lines, Line<Stream<S>>);

#[cfg(test)]
mod tests {
    use memtier_model::write::TinyModel;

    use super::*;
    use crate::ModelFile;

    #[test]
    fn what_a_plan_wants_is_what_nobody_has_taken_for_it_yet() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, TinyModel::llama(5).to_gguf().unwrap().to_bytes()).unwrap();
        let settings = Settings::default();
        let arch = settings.arch(&ModelFile::open(file.path()).unwrap()).unwrap();
        let mib = Bytes::mib;
        let part = |context, taken| Part {
            context: mib(context),
            taken: mib(taken),
            ..Part::new(String::new(), arch.clone(), mib(1000), false)
        };
        // Without a reserve file nothing is charged but the plan's own memory.
        assert_eq!(part(0, 0).wanted(mib(900), mib(0), mib(0)), mib(900));
        // Of 500 of context and 100 of reserve the context is there, and the kernels: 60 of the reserve.
        assert_eq!(part(500, 60).wanted(mib(900), mib(0), mib(100)), mib(340));
        // What others took since is not ours.
        assert_eq!(part(500, 4000).wanted(mib(900), mib(0), mib(100)), mib(300));
        // A swap keeps 200, which the driver counts as well.
        assert_eq!(part(500, 260).wanted(mib(900), mib(200), mib(100)), mib(140));
        assert_eq!(part(0, 0).wanted(mib(900), mib(200), mib(0)), mib(700));
    }
}
