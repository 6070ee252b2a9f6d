//! The engine: from a file to answers.

mod batch;
mod pass;
mod requests;
mod score;

use memtier::{Device, Engine, HostBackend, Loading, MemoryReport, Planning, Serving, Stream, plan::MemoryPlan};
use memtier_model::ModelDescription;

use self::batch::Batch;
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    config::Settings,
    load::{Progress, upload},
    model::{self, Model},
    ops::Cpu,
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
        settings.check()?;
        let description = ModelDescription::from_gguf(file.gguf())?;
        let arch = Arch::new(file, &description, settings.block_tokens)?;
        let cpu = Cpu::new(settings.threads)?;
        let device = Device::new(HostBackend::new(), settings.budget);
        let (engine, stream) = plan(Engine::open(&device), &arch, settings)?;
        Self::start(engine, stream, device, cpu, arch, settings, file, report)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of an engine, named by its fields")]
    fn start(
        mut engine: Engine<Planning<Model>>,
        mut stream: Stream<memtier::Host>,
        device: Device,
        cpu: Cpu,
        arch: Arch,
        settings: &Settings,
        file: &ModelFile,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, EngineError> {
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

    /// The engine's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
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
