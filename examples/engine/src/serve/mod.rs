//! The engine: from a file to answers.

mod batch;
mod draft;
#[cfg(test)]
mod evict_tests;
mod fork;
mod front;
mod graphs;
mod pair;
mod pass;
mod persist;
mod prefixes;
mod queue;
mod requests;
mod score;
mod slide;
mod states;
mod swap;
mod tiers;

use std::sync::Arc;

pub(crate) use self::front::Cached;
use self::{
    batch::Batch,
    front::{Carved, Front, carve},
    graphs::Graphs,
    pair::CachedPairs,
    prefixes::Prefixes,
    queue::Waiting,
};
pub use self::{
    front::PartReport,
    queue::{Outcome, RequestId},
    swap::{Addresses, SwapFailed},
};
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    compute::Compute,
    config::Settings,
    load::{Progress, upload},
    model::{self, Model},
    offload::{Assignment, Part},
    ops::Cpu,
    policy::{self, CachedBlocks, Decisions, Governor},
    reserve::{Measuring, Reserve},
    sequence::Sequence,
};
use memtier::{
    Bytes, Device, Engine, Host, HostBackend, MemoryReport, Serving, Stream, Tokens,
    admission::AdmissionQueue,
    plan::MemoryPlan,
    pressure::{Degradation, Watcher},
};

/// A model being served: owns the memory, the stream and the requests.
pub struct Llm<S: Compute = Host> {
    // Requests go before the pools that their blocks are in.
    sequences: Vec<Option<Sequence>>,
    prefixes: Option<Prefixes>,
    engine: Engine<Serving<Model<S>>>,
    stream: Stream<S>,
    device: Device,
    ops: S::Ops,
    /// The whole model.
    arch: Arch,
    /// What of it runs in `engine`.
    main: Part,
    /// The layers before those, on a device of their own.
    front: Option<Front>,
    settings: Settings,
    batch: Batch,
    governor: Governor,
    queue: AdmissionQueue<Waiting>,
    requests: RequestId,
    graphs: Graphs<S>,
    watcher: Option<Arc<Watcher>>,
    measuring: Option<Measuring>,
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
        Self::open_on(Cpu::new(settings.threads)?, file, settings, watcher, report)
    }

    /// What the planner is asked for, without opening anything: for `plan` without `serve`.
    ///
    /// # Errors
    /// As [`Llm::open`].
    pub fn plan_only(file: &ModelFile, settings: &Settings) -> Result<Vec<(String, MemoryPlan)>, EngineError> {
        settings.check()?;
        Self::plan_on(&Cpu::new(settings.threads)?, file, settings)
    }
}

impl<S: Compute> Llm<S> {
    /// As [`open_watched`](Llm::open_watched), served by `ops`: the CPU, or a GPU.
    ///
    /// # Errors
    /// As there, and [`EngineError::Setting`] or [`EngineError::Unsupported`] for what is not served there.
    pub fn open_on(
        ops: S::Ops,
        file: &ModelFile,
        settings: &Settings,
        watcher: Option<&Arc<Watcher>>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, EngineError> {
        settings.check()?;
        S::check(settings)?;
        let mut arch = S::prepare(settings.arch(file)?)?;
        let ops = S::with_libraries(ops, &mut arch, settings);
        let measuring = Measuring::begin::<S>(&ops, &arch, settings);
        let mut assignment = Assignment::decide(&arch, settings)?;
        assignment.charge::<S>(&ops, &arch, settings);
        let Assignment { main, front } = assignment;
        // Both are planned before a byte of either is loaded.
        let beside =
            |front: &Part| carve::<Host>(front, &arch, settings, Device::new(HostBackend::new(), front.budget));
        let front_carved = front.as_ref().map(beside).transpose()?;
        let Carved { mut engine, mut stream, device } =
            carve::<S>(&main, &arch, settings, S::device(&ops, main.budget))?;
        let mut governor = Governor::new(&arch, settings, capacity(&arch, settings), watcher)?;
        if let (_, Some(decision)) = policy::plan_budget(settings) {
            governor.decisions.push(decision);
        }
        let beside = front_carved.as_ref().map_or(Bytes::ZERO, |carved| carved.engine.memory_plan().total());
        let total = engine.memory_plan().total();
        if S::ON_HOST {
            governor.check_load(settings, Bytes::new(total.count().saturating_add(beside.count())))?;
        }
        let mut done = 0;
        let parts = front.zip(front_carved);
        let mut load = |(part, carved)| Front::load(carved, part, (file, S::cpu(&ops), settings), &mut done, report);
        let front = parts.map(&mut load).transpose()?;
        upload(file, &main.arch, S::cpu(&ops), engine.load(&mut stream)?, &mut done, report)?;
        let engine = engine.serve()?;
        let prefixes = Prefixes::open(file, &main.arch, settings, engine.bundle())?;
        if let Some(prefixes) = &prefixes {
            governor.cached = Some(Box::new(prefixes.cached_blocks()));
        }
        let mut llm = Llm {
            sequences: (0..settings.max_batch).map(|_| None).collect(),
            prefixes,
            engine,
            stream,
            device,
            ops,
            arch,
            main,
            front,
            settings: settings.clone(),
            batch: Batch::new(settings),
            queue: AdmissionQueue::new(settings.queue, Governor::backpressure(settings)?),
            governor,
            requests: 0,
            graphs: Graphs::new(settings.graphs),
            watcher: watcher.cloned(),
            measuring,
        };
        if let Some(caches) = llm.cached_pairs() {
            llm.governor.cached = Some(Box::new(CachedPairs(caches)));
        }
        llm.record_graphs()?;
        Ok(llm)
    }

    /// As [`plan_only`](Llm::plan_only), for `ops`.
    ///
    /// # Errors
    /// As [`open_on`](Self::open_on).
    pub fn plan_on(
        ops: &S::Ops,
        file: &ModelFile,
        settings: &Settings,
    ) -> Result<Vec<(String, MemoryPlan)>, EngineError> {
        settings.check()?;
        S::check(settings)?;
        let mut arch = S::prepare(settings.arch(file)?)?;
        let ops = &S::with_libraries(ops.clone(), &mut arch, settings);
        let mut assignment = Assignment::decide(&arch, settings)?;
        assignment.charge::<S>(ops, &arch, settings);
        let Assignment { main, front } = assignment;
        let beside = |part: Part| {
            let device = Device::new(HostBackend::new(), part.budget);
            part.preview::<Host>(&arch, settings, device).map(|plan| (part.name, plan))
        };
        let front = front.map(beside).transpose()?;
        let plan = main.preview::<S>(&arch, settings, S::device(ops, main.budget))?;
        Ok(front.into_iter().chain([(main.name, plan)]).collect())
    }

    /// Ends the measurement of the library reserve and keeps it in [`Settings::reserve_file`]. Call it once, when the first passes
    /// are over and all that is claimed on first use is there. `None` without a file, and where the system does not say.
    ///
    /// # Errors
    /// [`EngineError::Reserve`]: the file cannot be written. The engine serves on.
    pub fn measured_start(&mut self) -> Result<Option<Reserve>, EngineError> {
        let Some(measuring) = self.measuring.take() else { return Ok(None) };
        let devices = self.front.iter().map(Front::device).chain([&self.device]);
        measuring.end::<S>(&self.ops, &self.arch, &self.settings, devices)
    }

    /// Whether a vendor's library multiplies the rows of prompts, and why not. `None` where there are no such libraries.
    pub fn libraries(&self) -> Option<String> {
        S::libraries(&self.ops).map(|(_, sentence)| sentence)
    }

    /// Allocations that others than the engine's backend have asked a driver for, so far: vendor libraries, or the program itself.
    /// `None` where there is no driver, a sentence where nobody counts.
    pub fn library_allocations(&self) -> Option<Result<u64, String>> {
        S::library_allocations(&self.ops)
    }

    /// The devices: one, or the one with the first layers and the host with the rest.
    pub fn parts(&self) -> Vec<PartReport<'_>> {
        let (plan, report) = (self.engine.memory_plan(), self.engine.memory_report());
        let main = PartReport { name: &self.main.name, plan, report, prefixes: self.prefix_stats() };
        self.front.iter().map(Front::part).chain([main]).collect()
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

    /// KV state of one token of a request that starts now.
    pub fn kv_per_token(&self) -> Bytes {
        queue::kv_per_token(&self.arch, Some(self.limits().limits.kv) == self.settings.kv_low)
    }

    /// The engine's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Tokens that the KV pool holds when nothing runs.
fn capacity(arch: &Arch, settings: &Settings) -> Tokens {
    let kv = model::spec::<Host>(arch, &settings.config(arch)).kv;
    Tokens::new(kv.most.count().saturating_mul(settings.block_tokens as u64))
}

#[allow(dead_code, reason = "documents that the engine crosses threads")]
fn crosses_threads<S: Compute>(llm: Llm<S>) -> impl Send {
    llm
}
