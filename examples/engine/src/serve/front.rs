//! The layers that run on the device while the rest runs on the host: an engine of their own, with their weights, their
//! keys and values and their scratch.

use std::{path::Path, sync::Arc};

use memtier::{
    BlockPool, Bytes, Device, Engine, Fence, GlobalKv, Host, MemoryPlan, MemoryReport, Planning, PrefixCacheStats,
    Serving, Step, Stream, SwaKv, Ticket, Tokens, f16,
};
use memtier_store::Loaded;

use super::{
    Probe, Row,
    batch::{Batch, Share},
    pair::Prefix,
    pass::write_inputs,
    prefixes::{Prefixes, copy_window, keep_copy},
    slide::leave,
};
use crate::{
    EngineError, ModelFile,
    arch::Arch,
    compute::Compute,
    config::Settings,
    forward::{Pass, forward},
    load::{Progress, upload},
    model::{self, Model, ModelView},
    offload::Part,
    ops::Cpu,
    sequence::Sequence,
};

/// Keys and values of one request in one part.
pub(crate) struct Cached {
    pub(crate) kv: Ticket<GlobalKv<f16>>,
    pub(crate) window: Option<Ticket<SwaKv<f16>>>,
    /// Takes the copy of the window when the prompt is in.
    pub(crate) snapshot: Option<Arc<Ticket<SwaKv<f16>>>>,
}

/// A part that has its memory and not its weights.
pub(super) struct Carved<S: Compute> {
    pub(super) engine: Engine<Planning<Model<S>>>,
    pub(super) stream: Stream<S>,
    pub(super) device: Device,
}

/// Plans a part and carves its memory.
///
/// # Errors
/// [`EngineError::Plan`] when it does not fit, [`EngineError::DeviceFull`] when the device is too full; nothing was acquired.
pub(super) fn carve<S: Compute>(
    part: &Part,
    whole: &Arch,
    settings: &Settings,
    device: Device,
) -> Result<Carved<S>, EngineError> {
    let (device, engine, lines, stream) = part.declare::<S>(whole, settings, device)?;
    let reprice = |config: &memtier::plan::Config| part.demands::<S>(whole, config);
    let request = || part.request::<S>(whole, settings, &reprice);
    // `plan` takes the first of the memory already.
    let weighed = engine.preview(request()).map_err(|refused| part.refused(settings, refused))?;
    part.check_room::<S>(&weighed, Bytes::ZERO)?;
    let engine = engine.plan(request()).map_err(|refused| part.refused(settings, refused.report))?;
    let mut engine = engine.carve(lines).map_err(|failed| failed.error)?;
    let stream = engine.open_stream(stream)?;
    Ok(Carved { engine, stream, device })
}

/// The device's part, serving.
pub(super) struct Front {
    pub(super) prefixes: Option<Prefixes>,
    engine: Engine<Serving<Model>>,
    stream: Stream<memtier::Host>,
    device: Device,
    part: Part,
    /// The residual stream on its way there and back.
    x: Vec<f32>,
    /// Behind the last pass.
    fence: Option<Fence>,
}

impl Front {
    /// Uploads the weights of a carved part.
    ///
    /// # Errors
    /// [`EngineError`] of the tensor that failed.
    pub(super) fn load(
        carved: Carved<Host>,
        part: Part,
        (file, cpu, settings): (&ModelFile, &Cpu, &Settings),
        done: &mut u64,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Self, EngineError> {
        let Carved { mut engine, mut stream, device } = carved;
        upload(file, &part.arch, cpu, engine.load(&mut stream)?, done, report)?;
        let tokens = model::pass_tokens(&settings.config(&part.arch));
        let x = vec![0.0; tokens * part.arch.weights.hidden];
        let engine = engine.serve()?;
        let prefixes = Prefixes::open(file, &part.arch, settings, engine.bundle())?;
        Ok(Front { prefixes, engine, stream, device, part, x, fence: None })
    }

    /// Blocks for a request of up to `room` tokens; `prefix` is what is cached of its prompt.
    ///
    /// # Errors
    /// [`EngineError::Capacity`]; nothing was taken.
    pub(super) fn open(&mut self, room: Tokens, prefix: Option<Prefix>) -> Result<Cached, EngineError> {
        let bundle = self.engine.bundle();
        let (mut kv, state) = match prefix {
            Some((lease, state)) => (lease.open(room), state),
            None => (bundle.kv.open(room), None),
        };
        extend_to(&bundle.kv, &mut kv, room)?;
        let mut window = bundle.window.as_ref().map(|pool| pool.open(room));
        if let (Some(state), Some(window)) = (state, &mut window) {
            let mut step = self.engine.step(&mut self.stream)?;
            if let Step { buffers: ModelView { window: Some(windows), .. }, on, .. } = &mut step {
                let held = state.copy(on, (windows, None), window)?;
                window.advance(held, &step.finish()?)?;
            }
        }
        Ok(Cached { kv, window, snapshot: self.open_snapshot(room) })
    }

    /// Another request that goes on from where `source` is, as [`Llm::fork`](super::Llm::fork) has it.
    ///
    /// # Errors
    /// [`EngineError::Capacity`]; nothing was taken.
    pub(super) fn fork(&mut self, source: &Cached, room: Tokens) -> Result<Cached, EngineError> {
        let written = source.kv.tokens();
        let bundle = self.engine.bundle();
        let mut kv = source.kv.fork(room);
        // The blocks that nothing was written to stay the other's.
        kv.truncate(written.in_blocks_of(bundle.kv.per_block()));
        extend_to(&bundle.kv, &mut kv, room)?;
        let mut window = bundle.window.as_ref().map(|pool| pool.open(room));
        if let (Some(from), Some(to)) = (&source.window, &mut window)
            && !written.is_zero()
        {
            let Front { engine, stream, part, .. } = self;
            copy_window(engine, stream, part.arch.window, (from, to), written.count() as usize)?;
        }
        Ok(Cached { kv, window, snapshot: None })
    }

    /// An empty request to copy a window into.
    pub(super) fn open_snapshot(&self, room: Tokens) -> Option<Arc<Ticket<SwaKv<f16>>>> {
        self.prefixes.as_ref().filter(|_| self.part.arch.window_snapshots > 0)?;
        self.engine.bundle().window.as_ref().map(|pool| Arc::new(pool.open(room)))
    }

    /// Publishes what the last pass filled of a request with these tokens.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(super) fn publish(&self, cached: &mut Cached, tokens: &[u32]) -> Result<(), EngineError> {
        let (Some(prefixes), Some(fence)) = (&self.prefixes, &self.fence) else { return Ok(()) };
        prefixes.publish(&mut cached.kv, tokens, &fence.wait()?)
    }

    /// Saves what is cached here. How many blocks.
    ///
    /// # Errors
    /// [`EngineError::Store`].
    pub(super) fn save_prefixes(&mut self, folder: &Path) -> Result<u64, EngineError> {
        let Front { prefixes: Some(prefixes), engine, stream, .. } = self else { return Ok(0) };
        prefixes.save((engine, stream), folder)
    }

    /// Loads what was saved of this part. What became of it.
    ///
    /// # Errors
    /// [`EngineError::Store`].
    pub(super) fn load_prefixes(&mut self, folder: &Path) -> Result<Vec<Loaded>, EngineError> {
        let Front { prefixes: Some(prefixes), engine, stream, .. } = self else { return Ok(Vec::new()) };
        prefixes.load((engine, stream), folder)
    }

    /// Keeps a copy of a request's window at the end of what it has published, in `copy`.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(super) fn keep_window(&mut self, cached: &Cached, copy: Arc<Ticket<SwaKv<f16>>>) -> Result<(), EngineError> {
        let Front { prefixes: Some(prefixes), engine, stream, part, .. } = self else { return Ok(()) };
        let Some(tokens) = prefixes.wants(&cached.kv, cached.window.as_ref(), &part.arch) else { return Ok(()) };
        match (&mut prefixes.states, &cached.window) {
            (Some(states), Some(window)) => {
                keep_copy(states, (engine, stream, part.arch.window), (&cached.kv, window), copy, tokens)
            }
            _ => Ok(()),
        }
    }

    /// Gives up what left the windows of prompts, in a step of its own: a row pins what it names until it is set again.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(super) fn release(&mut self, sequences: &mut [Option<Sequence>]) -> Result<(), EngineError> {
        let Front { engine, stream, part, .. } = self;
        let mut released = false;
        for sequence in sequences.iter_mut().flatten().filter(|sequence| sequence.pending() > 1) {
            if let Some(window) = sequence.front.as_mut().and_then(|cached| cached.window.as_mut()) {
                released |= leave(window, sequence.done, part.arch.window);
            }
        }
        if !released {
            return Ok(());
        }
        let mut step = engine.step(stream)?;
        let Step { buffers: ModelView { window_table: Some(table), .. }, on, .. } = &mut step else { return Ok(()) };
        for (row, sequence) in sequences.iter().enumerate() {
            if let Some(window) = sequence.as_ref().and_then(|sequence| sequence.front.as_ref()?.window.as_ref()) {
                table.set(on, row, window)?;
            }
        }
        step.finish()?.wait()?;
        Ok(())
    }

    /// Makes room in a request's window for the next `count` tokens, of which `done` came before.
    pub(super) fn slide(&self, cached: &mut Cached, done: usize, count: usize) -> Result<(), EngineError> {
        let Some(ticket) = &mut cached.window else { return Ok(()) };
        leave(ticket, done, self.part.arch.window);
        ticket.extend(Tokens::new(count as u64))?;
        Ok(())
    }

    /// Runs the layers over `x`, tokens x hidden, in place.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(super) fn pass(
        &mut self,
        cpu: &Cpu,
        (batch, sequences): (&Batch, &mut [Option<Sequence>]),
        copy: impl FnOnce(&mut [f32]) -> Result<(), memtier::LaunchError>,
        mut probe: Option<Probe<'_>>,
    ) -> Result<&[f32], EngineError> {
        let Front { engine, stream, part, x, fence, .. } = self;
        let arch = &part.arch;
        let tokens = batch.tokens.len();
        let x = &mut x[..tokens * arch.weights.hidden];
        copy(x)?;
        let mut step = engine.step(stream)?;
        for Share { row, .. } in &batch.shares {
            // After a fork, the last block is somebody else's, too.
            if let Some(Sequence { front: Some(cached), done, .. }) = &mut sequences[*row] {
                step.buffers.kv.own(step.on, &mut cached.kv, *done / arch.block_tokens)?;
            }
        }
        write_inputs(&mut step, batch, sequences, |sequence| {
            sequence.front.as_ref().map(|cached| (&cached.kv, cached.window.as_ref()))
        })?;
        {
            let Step { buffers, on, scratch, .. } = &mut step;
            let on = *on;
            let mut frame = scratch.nested();
            let mut logits = frame.take(0)?;
            let last = arch.first + arch.layers.len() - 1;
            let given = std::cell::RefCell::new(x);
            let mut enter = |to: &mut memtier::StableSpanMut<'_, f32, _>| on.write(to, &given.borrow());
            let mut see = |layer: usize, from: memtier::StableSpan<'_, f32, _>| {
                if layer != last && probe.is_none() {
                    return Ok(());
                }
                let mut x = given.borrow_mut();
                on.read::<f32>(from, &mut x)?;
                if let Some(probe) = &mut probe {
                    probe(layer, &x);
                }
                Ok(())
            };
            let pass = Pass { tokens, picks: 0, decodes: 0 };
            forward(cpu, arch, pass, buffers, on, frame.nested(), &mut logits, &mut enter, &mut see)?;
        }
        *fence = Some(step.finish()?);
        Ok(&self.x[..tokens * self.part.arch.weights.hidden])
    }

    /// The last pass wrote `count` tokens of a request.
    pub(super) fn advance(&self, cached: &mut Cached, count: usize) -> Result<(), EngineError> {
        let Some(fence) = &self.fence else { return Ok(()) };
        let count = Tokens::new(count as u64);
        cached.kv.advance(count, fence)?;
        if let Some(window) = &mut cached.window {
            window.advance(count, fence)?;
        }
        Ok(())
    }

    /// Clears the rows of a request that ends.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(super) fn end(&mut self, row: Row) -> Result<(), EngineError> {
        let mut step = self.engine.step(&mut self.stream)?;
        let Step { buffers: ModelView { table, window_table, .. }, on, .. } = &mut step;
        table.clear(on, row)?;
        if let Some(window_table) = window_table {
            window_table.clear(on, row)?;
        }
        Ok(())
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn part(&self) -> PartReport<'_> {
        let (plan, report) = (self.engine.memory_plan(), self.engine.memory_report());
        let prefixes = self.prefixes.as_ref().map(|prefixes| prefixes.cache.stats());
        PartReport { name: &self.part.name, plan, report, prefixes }
    }
}

/// Gives a request all the blocks that `room` tokens need: free ones, the plan's next ones, then cached ones.
fn extend_to(
    pool: &BlockPool<GlobalKv<f16>, Host>,
    kv: &mut Ticket<GlobalKv<f16>>,
    room: Tokens,
) -> Result<(), EngineError> {
    let needed = room.in_blocks_of(pool.per_block()).beyond(kv.blocks());
    // What the plan has paid for comes before what might be wanted again.
    while pool.free() < needed
        && let Some(commit) = pool.planned_commit()
    {
        pool.grow(commit).map_err(|error| EngineError::Busy(error.to_string()))?;
    }
    kv.extend(Tokens::new(room.count().saturating_sub(kv.tokens().count())))?;
    Ok(())
}

/// What one of the devices was planned for and what it holds.
#[derive(Debug)]
pub struct PartReport<'l> {
    /// Which device, and what runs on it.
    pub name: &'l str,
    /// Its plan.
    pub plan: &'l MemoryPlan,
    /// What it holds now.
    pub report: MemoryReport,
    /// What its prefix cache holds and did.
    pub prefixes: Option<PrefixCacheStats>,
}

impl PartReport<'_> {
    /// What it may take.
    pub fn budget(&self) -> Bytes {
        self.plan.budget()
    }
}
