//! Another model on the same device: the old one ends, and what does not depend on it stays where it is.

use memtier::{
    Engine, Host, Line, Loading, ScratchFull, Step, Survives, account::GraphStats, admission::AdmissionQueue,
};

use super::{Batch, Llm, capacity, graphs::Graphs, prefixes::Prefixes};
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    compute::Compute,
    forward::Pass,
    load::{Progress, upload},
    model::{self, ModelLines, ModelView},
    offload::Assignment,
    policy::Governor,
};

/// A model that was not swapped.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SwapFailed<S: Compute = Host> {
    /// The engine, still serving the old model; `None` when that had ended already.
    pub engine: Option<Box<Llm<S>>>,
    /// Why not.
    #[source]
    pub error: EngineError,
}

impl<S: Compute> std::fmt::Debug for SwapFailed<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwapFailed").field("error", &self.error).field("serving", &self.engine.is_some()).finish()
    }
}

/// Where things are: the same for the same topology, over rebuilds and swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is the first address of what it is called")]
pub struct Addresses {
    pub workspace: u64,
    pub table: u64,
    pub kv: u64,
    pub scratch: u64,
    pub weights: u64,
}

impl<S: Compute> Llm<S> {
    /// Ends this model and serves another one, with the same settings. Workspaces, page tables, pools and scratch stay at
    /// their addresses where the new model's are of the same sizes; weights are released before the new ones are planned.
    ///
    /// # Errors
    /// [`SwapFailed`]: requests run or wait ([`EngineError::Busy`]; the old model serves on), or the new model is refused.
    pub fn swap(self, file: &ModelFile, report: &mut dyn FnMut(Progress)) -> Result<Self, SwapFailed<S>> {
        let busy = self.running() + self.waiting();
        if busy > 0 {
            let error = EngineError::Busy(format!("{busy} requests run or wait: let them end before the model goes"));
            return Err(SwapFailed { engine: Some(Box::new(self)), error });
        }
        let described = self.describe(file);
        let (ops, arch, governor) = match described {
            Ok(described) => described,
            Err(error) => return Err(SwapFailed { engine: Some(Box::new(self)), error }),
        };
        self.end_and_load(ops, arch, governor, file, report).map_err(|error| SwapFailed { engine: None, error })
    }

    /// Everything about the new model that can be refused while the old one still serves.
    fn describe(&self, file: &ModelFile) -> Result<(S::Ops, Arch, Governor), EngineError> {
        if self.front.is_some() || self.settings.gpu_layers.is_some() {
            let what = "a model swap with layers on a device".to_owned();
            return Err(EngineError::Unsupported { what, why: "open the new model instead" });
        }
        let mut arch = S::prepare(self.settings.arch(file)?)?;
        let ops = S::with_libraries(self.ops.clone(), &mut arch, &self.settings);
        let governor = Governor::new(&arch, &self.settings, capacity(&arch, &self.settings), self.watcher.as_ref())?;
        Ok((ops, arch, governor))
    }

    fn end_and_load(
        self,
        ops: S::Ops,
        arch: Arch,
        mut governor: Governor,
        file: &ModelFile,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, EngineError> {
        let Llm { mut engine, mut stream, device, settings, watcher, queue, requests, prefixes, governor: old, .. } =
            self;
        // What is cached is the old model's.
        drop((queue, prefixes, old));
        let scratch = engine.step(&mut stream)?.scratch.left();
        let (mut engine, kept) = engine.drain()?.end_model();
        let mut assignment = Assignment::decide(&arch, &settings)?;
        assignment.charge::<S>(&ops, &arch, &settings);
        let Assignment { main, .. } = assignment;
        let config = settings.config(&arch);
        let spec = model::spec::<S>(&main.arch, &config);
        let lines = ModelLines {
            weights: engine.declare(spec.weights),
            work: keep(&mut engine, kept.work, spec.work),
            kv: keep(&mut engine, kept.kv, spec.kv),
            table: keep(&mut engine, kept.table, spec.table),
            low: keep(&mut engine, kept.low, spec.low),
            low_table: keep(&mut engine, kept.low_table, spec.low_table),
            ring: keep(&mut engine, kept.ring, spec.ring),
            ring_table: keep(&mut engine, kept.ring_table, spec.ring_table),
            cold: keep(&mut engine, kept.cold, spec.cold),
            window: keep(&mut engine, kept.window, spec.window),
            window_table: keep(&mut engine, kept.window_table, spec.window_table),
            cold_window: keep(&mut engine, kept.cold_window, spec.cold_window),
        };
        // A stream is no part of a model: it stays, unless the new model's passes need more scratch.
        let needed = model::stream_spec::<S>(&main.arch, &config)?;
        let line = (needed.scratch > scratch).then(|| engine.declare(needed));
        let reprice = |config: &memtier::plan::Config| main.demands::<S>(&arch, config);
        let request = || main.request::<S>(&arch, &settings, &reprice);
        let weighed = engine.preview(request()).map_err(|refused| main.refused(&settings, refused))?;
        main.check_room::<S>(&weighed, device.resident().unwrap_or_default())?;
        let engine = engine.plan(request()).map_err(|refused| main.refused(&settings, refused.report))?;
        let mut engine = engine.carve(lines).map_err(|failed| failed.error)?;
        if let Some(line) = line {
            stream = engine.open_stream(line)?;
        }
        let mut done = 0;
        upload(file, &main.arch, S::cpu(&ops), engine.load(&mut stream)?, &mut done, report)?;
        let engine = engine.serve()?;
        let prefixes = Prefixes::open(file, &main.arch, &settings, engine.bundle())?;
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
            front: None,
            measuring: None,
            batch: Batch::new(&settings),
            queue: AdmissionQueue::new(settings.queue, Governor::backpressure(&settings)?),
            governor,
            graphs: Graphs::new(settings.graphs),
            watcher,
            settings,
            requests,
        };
        llm.record_graphs()?;
        Ok(llm)
    }

    /// Records the passes of one request, of two, and so on, before anything is served: recording takes memory of the heap.
    pub(super) fn record_graphs(&mut self) -> Result<(), EngineError> {
        if self.front.is_some() {
            return Ok(());
        }
        for tokens in 1..=self.settings.graphs.min(self.settings.max_batch) {
            let pass = Pass::decode(tokens);
            self.graphs.of(pass, (&self.ops, &self.main.arch), &mut self.engine, &mut self.stream)?;
        }
        Ok(())
    }

    /// Gives up all recorded passes. They are recorded again when they are wanted.
    ///
    /// # Errors
    /// [`EngineError::Device`].
    pub fn forget_graphs(&mut self) -> Result<(), EngineError> {
        self.graphs.forget(&mut self.engine)
    }

    /// How often passes were recorded and replayed since the model was loaded.
    pub fn graph_stats(&self) -> GraphStats {
        self.graphs.stats()
    }

    /// Where things are now.
    ///
    /// # Errors
    /// [`EngineError::Step`].
    pub fn addresses(&mut self) -> Result<Addresses, EngineError> {
        let mut step = self.engine.step(&mut self.stream)?;
        let Step { buffers: ModelView { weights, work, table, kv, .. }, scratch, .. } = &mut step;
        let first = scratch.take::<f32>(1).map_err(|full: ScratchFull| EngineError::Scratch(full))?;
        Ok(Addresses {
            workspace: work.tokens.read().widen().addr(),
            table: table.ids().widen().addr(),
            kv: kv.slab().raw().base(),
            scratch: first.read().widen().addr(),
            weights: weights.norm.widen().addr(),
        })
    }
}

/// A part of the old model, if it is what the new one wants; else a new one in its place.
fn keep<T: Survives>(engine: &mut Engine<Loading>, part: T, spec: T::Spec) -> Line<T> {
    match engine.keep(part, &spec) {
        Ok(line) => line,
        Err(refused) => {
            // First its memory goes, then the new one is planned.
            drop(refused);
            engine.declare(spec)
        }
    }
}
