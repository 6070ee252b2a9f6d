//! The engine: from a file to answers.

mod batch;
mod pass;
mod queue;
mod requests;
mod score;

use std::sync::Arc;

use memtier::{
    Bytes, Device, Engine, HostBackend, Loading, MemoryReport, Planning, Serving, Stream, Tokens,
    admission::AdmissionQueue,
    plan::MemoryPlan,
    pressure::{Degradation, Watcher},
};
use memtier_model::ModelDescription;

pub use self::queue::{Outcome, RequestId};
use self::{batch::Batch, queue::Waiting};
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    config::Settings,
    load::{Progress, upload},
    model::{self, Model},
    ops::Cpu,
    policy::{self, CachedBlocks, Decisions, Governor},
    sequence::Sequence,
};

/// A model being served: owns the memory, the stream and the requests.
pub struct Llm {
    // Requests go before the pools that their blocks are in.
    sequences: Vec<Option<Sequence>>,
    engine: Engine<Serving<Model>>,
    stream: Stream<memtier::Host>,
    device: Device,
    cpu: Cpu,
    arch: Arch,
    settings: Settings,
    batch: Batch,
    governor: Governor,
    queue: AdmissionQueue<Waiting>,
    requests: RequestId,
}

/// The name of an admitted request: its row in the batch.
pub type Row = usize;

/// What one pass gave a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The request.
    pub row: Row,
    /// Its next token.
    pub token: u32,
    /// Whether it has all the tokens it asked for; `end` it.
    pub last: bool,
}

/// Sees the residual stream (tokens x hidden) after every layer.
pub type Probe<'p> = &'p mut dyn FnMut(usize, &[f32]);

impl Llm {
    /// Describes, plans, carves and loads a model.
    ///
    /// # Errors
    /// [`EngineError`]; a configuration that does not fit is [`EngineError::Plan`] with the itemised report.
    pub fn open(file: &ModelFile, settings: &Settings, report: &mut dyn FnMut(Progress)) -> Result<Self, EngineError> {
        Self::open_watched(file, settings, None, report)
    }

    /// The same under a watcher's levels, [`process_watcher`](policy::process_watcher)'s for instance: the ladder bounds each
    /// step, and admission looks at what is free. Without one, nothing is known of the machine and nothing is refused for it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`EngineError::Load`] when the host would not survive the load.
    pub fn open_watched(
        file: &ModelFile,
        settings: &Settings,
        watcher: Option<&Arc<Watcher>>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, EngineError> {
        settings.check()?;
        let description = ModelDescription::from_gguf(file.gguf())?;
        let arch = Arch::new(file, &description, settings.block_tokens)?;
        let cpu = Cpu::new(settings.threads)?;
        let (budget, decided) = policy::plan_budget(settings);
        let device = Device::new(HostBackend::new(), budget);
        let (mut engine, mut stream) = plan(Engine::open(&device), &arch, settings)?;
        let mut governor = Governor::new(&arch, settings, capacity(&arch, settings), watcher)?;
        if let Some(decision) = decided {
            governor.decisions.push(decision);
        }
        governor.check_load(settings, engine.memory_plan().total())?;
        upload(file, &arch, &cpu, engine.load(&mut stream)?, report)?;
        Ok(Llm {
            sequences: (0..settings.max_batch).map(|_| None).collect(),
            engine: engine.serve()?,
            stream,
            device,
            cpu,
            arch,
            settings: settings.clone(),
            batch: Batch::new(settings),
            queue: AdmissionQueue::new(settings.queue, Governor::backpressure(settings)?),
            governor,
            requests: 0,
        })
    }

    /// What the planner is asked for, without opening anything: for `plan` without `serve`.
    ///
    /// # Errors
    /// As [`Llm::open`].
    pub fn plan_only(file: &ModelFile, settings: &Settings) -> Result<MemoryPlan, EngineError> {
        settings.check()?;
        let description = ModelDescription::from_gguf(file.gguf())?;
        let arch = Arch::new(file, &description, settings.block_tokens)?;
        let demands = model::demands(&arch, &settings.config(&arch))?;
        let reprice = |config: &memtier::plan::Config| Ok(model::demands(&arch, config)?);
        let memtier::PlanRequest { limits, config, locks, reprice } = settings.request(&arch, &reprice);
        let input = memtier::PlanInput { limits, config, locks, demands: &demands, reprice };
        Ok(memtier::plan_memory(&input).map_err(memtier::PlanError::from)?)
    }

    /// The accepted plan.
    pub fn memory_plan(&self) -> &MemoryPlan {
        self.engine.memory_plan()
    }

    /// What the device holds now, tier by tier.
    pub fn memory_report(&self) -> MemoryReport {
        self.engine.memory_report()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The resolved model.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// What the memory policy decided so far.
    pub fn decisions(&self) -> &Decisions {
        &self.governor.decisions
    }

    /// The limits that hold until the next step looks again.
    pub fn limits(&self) -> &Degradation {
        self.governor.latch().current()
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.sequences.iter().flatten().count()
    }

    /// Connects a cache whose blocks go when the ladder says so, and when a request finds the pool full.
    pub fn set_cached_blocks(&mut self, cached: Box<dyn CachedBlocks>) {
        self.governor.cached = Some(cached);
    }

    /// KV state of one token.
    pub fn kv_per_token(&self) -> Bytes {
        queue::kv_per_token(&self.arch)
    }

    /// The engine's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Tokens that the KV pool holds when nothing runs.
fn capacity(arch: &Arch, settings: &Settings) -> Tokens {
    let kv = model::spec(arch, &settings.config(arch)).kv;
    Tokens::new(kv.most.count().saturating_mul(settings.block_tokens as u64))
}

/// Declares, plans and carves.
fn plan(
    mut engine: Engine<Loading>,
    arch: &Arch,
    settings: &Settings,
) -> Result<(Engine<Planning<Model>>, Stream<memtier::Host>), EngineError> {
    let config = settings.config(arch);
    let lines = engine.declare_bundle::<Model>(model::spec(arch, &config));
    let stream = engine.declare(model::stream_spec(arch, &config)?);
    let reprice = |config: &memtier::plan::Config| Ok(model::demands(arch, config)?);
    let engine = engine.plan(settings.request(arch, &reprice)).map_err(|refused| refused.report)?;
    let mut engine = engine.carve(lines).map_err(|failed| failed.error)?;
    let stream = engine.open_stream(stream)?;
    Ok((engine, stream))
}

#[allow(dead_code, reason = "documents that the engine crosses threads")]
fn crosses_threads(llm: Llm) -> impl Send {
    llm
}
