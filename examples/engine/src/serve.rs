//! The engine: from a file to answers.

use memtier::{
    Device, Engine, Fence, HostBackend, LaunchError, Loading, MemoryReport, Planning, Serving, Step, StepError, Stream,
    Tokens, plan::MemoryPlan,
};
use memtier_model::ModelDescription;

use crate::{
    EngineError, ModelFile,
    arch::Arch,
    config::Settings,
    forward::{Pass, forward},
    load::{Progress, upload},
    model::{self, Model, ModelView},
    ops::Cpu,
    sequence::{Sampling, Sequence},
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

/// The inputs of one pass, on the host. Sized once.
struct Batch {
    tokens: Vec<u32>,
    rows: Vec<u32>,
    positions: Vec<u32>,
    lengths: Vec<u32>,
    picks: Vec<u32>,
    sampling: Vec<f32>,
    random: Vec<u32>,
    sampled: Vec<u32>,
    /// Request, tokens, and whether it gets a new one.
    shares: Vec<(Row, usize, bool)>,
}

impl Batch {
    fn new(settings: &Settings) -> Self {
        let (rows, tokens) = (settings.max_batch, settings.prefill_chunk.max(settings.max_batch));
        Batch {
            tokens: Vec::with_capacity(tokens),
            rows: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            lengths: vec![0; rows],
            picks: Vec::with_capacity(rows),
            sampling: Vec::with_capacity(2 * rows),
            random: Vec::with_capacity(3 * rows),
            sampled: vec![0; rows],
            shares: Vec::with_capacity(rows),
        }
    }

    fn clear(&mut self) {
        for list in [&mut self.tokens, &mut self.rows, &mut self.positions, &mut self.picks, &mut self.random] {
            list.clear();
        }
        self.sampling.clear();
        self.shares.clear();
    }

    /// Takes `count` pending tokens of a request into the pass; its last one wants logits if nothing is left.
    fn add(&mut self, row: Row, sequence: &mut Sequence, count: usize) {
        let range = sequence.done..sequence.done + count;
        self.tokens.extend_from_slice(&sequence.tokens[range.clone()]);
        self.rows.extend(range.clone().map(|_| row as u32));
        self.positions.extend(range.clone().map(|position| position as u32));
        self.lengths[row] = range.end as u32;
        let complete = range.end == sequence.tokens.len();
        if complete {
            self.pick(sequence, self.tokens.len() - 1);
        }
        self.shares.push((row, count, complete));
    }

    fn pick(&mut self, sequence: &mut Sequence, index: usize) {
        let Sampling { temperature, top_p, top_k, .. } = sequence.sampling;
        self.picks.push(index as u32);
        self.sampling.extend([temperature, top_p]);
        let bits = sequence.random();
        self.random.extend([top_k, bits as u32, (bits >> 32) as u32]);
    }
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

    /// Takes a request in, with all the blocks that prompt and answer can need.
    ///
    /// # Errors
    /// [`EngineError::BatchFull`] or [`EngineError::Capacity`] when it must wait, [`EngineError::PromptTooLong`] when it can
    /// never fit. Nothing is taken.
    pub fn admit(&mut self, prompt: &[u32], answer: usize, sampling: Sampling) -> Result<Row, EngineError> {
        sampling.check()?;
        let most = self.settings.max_seq_len;
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() > most {
            let (tokens, trained) = (prompt.len(), self.arch.trained_context);
            return Err(EngineError::PromptTooLong { tokens, most, trained });
        }
        if let Some(token) = prompt.iter().find(|token| **token as usize >= self.arch.vocab()) {
            let remedy = format!("the vocabulary has {} tokens", self.arch.vocab());
            return Err(EngineError::Setting { name: "token", value: token.to_string(), remedy });
        }
        let rows = self.sequences.len();
        let row = self.sequences.iter().position(Option::is_none).ok_or(EngineError::BatchFull { rows })?;
        let most = prompt.len().saturating_add(answer).min(most);
        let room = Tokens::new(most as u64);
        let bundle = self.engine.bundle();
        let mut kv = bundle.kv.open(room);
        while let Err(full) = kv.extend(room) {
            // The plan may have paid for more blocks than were committed so far.
            let Some(commit) = bundle.kv.planned_commit() else { return Err(full.into()) };
            if let Err(error) = bundle.kv.grow(commit) {
                return Err(EngineError::Busy(error.to_string()));
            }
        }
        let window = bundle.window.as_ref().map(|pool| pool.open(room));
        self.sequences[row] = Some(Sequence::new(kv, window, prompt, most, sampling));
        Ok(row)
    }

    /// Runs one pass: one token of every request that decodes, then as much prompt as fits. Tells through `on_token` what
    /// was chosen. Returns the tokens it processed; 0 when nothing is pending.
    ///
    /// # Errors
    /// [`EngineError`]; requests are as they were before the pass.
    pub fn step(&mut self, mut on_token: impl FnMut(Token)) -> Result<usize, EngineError> {
        self.batch.clear();
        let room = self.settings.prefill_chunk.max(self.settings.max_batch);
        let mut left = room;
        for decoding in [true, false] {
            for (row, sequence) in self.sequences.iter_mut().enumerate() {
                let Some(sequence) = sequence else { continue };
                let pending = sequence.pending();
                if pending == 0 || (pending == 1) != decoding || sequence.tokens.len() > sequence.most {
                    continue;
                }
                let count = pending.min(left);
                if count > 0 {
                    self.batch.add(row, sequence, count);
                    left -= count;
                }
            }
        }
        let tokens = self.batch.tokens.len();
        if tokens == 0 {
            return Ok(0);
        }
        let fence = self.pass(None, None)?;
        fence.wait()?;
        let mut pick = 0;
        for index in 0..self.batch.shares.len() {
            let (row, count, complete) = self.batch.shares[index];
            let Some(sequence) = &mut self.sequences[row] else { continue };
            sequence.advance(count, &fence)?;
            if complete {
                let token = self.batch.sampled[pick];
                pick += 1;
                let last = sequence.tokens.len() + 1 >= sequence.most;
                if sequence.tokens.len() < sequence.most {
                    sequence.tokens.push(token);
                }
                if last {
                    // Its last token is nobody's input.
                    sequence.done = sequence.tokens.len();
                }
                on_token(Token { row, token, last });
            }
        }
        Ok(tokens)
    }

    /// One forward pass over `self.batch`. With `logits` they are copied out (picks x vocabulary).
    fn pass(&mut self, logits: Option<&mut [f32]>, probe: Option<Probe<'_>>) -> Result<Fence, EngineError> {
        let Llm { sequences, engine, stream, cpu, arch, batch, .. } = self;
        for (row, count, _) in &batch.shares {
            if let Some(sequence) = &mut sequences[*row] {
                sequence.slide(arch.window, *count)?;
            }
        }
        let mut step = engine.step(stream)?;
        write_inputs(&mut step, batch, sequences)?;
        let pass = Pass { tokens: batch.tokens.len(), picks: batch.picks.len() };
        {
            let Step { buffers, on, scratch, .. } = &mut step;
            let on = *on;
            let mut frame = scratch.nested();
            let mut span = frame.take(pass.picks * arch.vocab())?;
            let mut copy = Vec::new();
            let mut probe = probe;
            let mut see = |layer: usize, x: memtier::StableSpan<'_, f32, _>| -> Result<(), LaunchError> {
                let Some(probe) = &mut probe else { return Ok(()) };
                copy.resize(x.len(), 0.0);
                on.read::<f32>(x, &mut copy)?;
                probe(layer, &copy);
                Ok(())
            };
            forward(cpu, arch, pass, buffers, on, frame.nested(), &mut span, &mut see)?;
            if let Some(logits) = logits {
                on.read::<f32>(&span, logits)?;
            }
            on.read(buffers.work.sampled.read(), &mut batch.sampled)?;
        }
        Ok(step.finish()?)
    }

    /// Lets a request answer no more. It keeps its blocks until [`end`](Llm::end).
    ///
    /// # Errors
    /// [`EngineError::NoSequence`].
    pub fn stop(&mut self, row: Row) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(row).and_then(Option::as_mut).ok_or(EngineError::NoSequence { row })?;
        sequence.done = sequence.tokens.len();
        Ok(())
    }

    /// Ends a request in whatever state it is: its blocks go back, and its rows are cleared.
    ///
    /// # Errors
    /// [`EngineError::NoSequence`].
    pub fn end(&mut self, row: Row) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(row).and_then(Option::take);
        let sequence = sequence.ok_or(EngineError::NoSequence { row })?;
        let mut step = self.engine.step(&mut self.stream)?;
        let Step { buffers: ModelView { table, window_table, .. }, on, .. } = &mut step;
        table.clear(on, row)?;
        if let Some(window_table) = window_table {
            window_table.clear(on, row)?;
        }
        self.batch.lengths[row] = 0;
        drop((sequence, step));
        Ok(())
    }

    /// Teacher-forced logits: calls `see(position, logits)` for every token of `tokens`, in order, where the logits are those
    /// of the token after it. `probe` sees the residual stream of each piece.
    ///
    /// # Errors
    /// As [`Llm::admit`].
    pub fn score(
        &mut self,
        tokens: &[u32],
        see: &mut dyn FnMut(usize, &[f32]),
        mut probe: Option<Probe<'_>>,
    ) -> Result<(), EngineError> {
        let row = self.admit(tokens, 0, Sampling::GREEDY)?;
        let vocab = self.arch.vocab();
        let piece = self.settings.max_batch.min(self.settings.prefill_chunk);
        let mut logits = vec![0.0; piece * vocab];
        let mut at = 0;
        let result = loop {
            if at == tokens.len() {
                break Ok(());
            }
            let count = piece.min(tokens.len() - at);
            self.batch.clear();
            let Some(sequence) = &mut self.sequences[row] else { break Err(EngineError::NoSequence { row }) };
            self.batch.add(row, sequence, count);
            self.batch.picks.clear();
            self.batch.sampling.clear();
            self.batch.random.clear();
            (0..count).for_each(|index| self.batch.pick(sequence, index));
            let logits = &mut logits[..count * vocab];
            let probe: Option<Probe<'_>> = match &mut probe {
                Some(probe) => Some(&mut **probe),
                None => None,
            };
            match self.pass(Some(logits), probe) {
                Err(error) => break Err(error),
                Ok(fence) => {
                    if let Some(sequence) = &mut self.sequences[row]
                        && let Err(error) = sequence.advance(count, &fence)
                    {
                        break Err(error);
                    }
                }
            }
            logits.chunks_exact(vocab).enumerate().for_each(|(index, logits)| see(at + index, logits));
            at += count;
        };
        self.end(row)?;
        result
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

    /// Tokens of a request so far, prompt and answer.
    pub fn tokens(&self, row: Row) -> Option<&[u32]> {
        self.sequences.get(row)?.as_ref().map(|sequence| &*sequence.tokens)
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

/// Writes what the pass reads, and the page table rows of its requests.
fn write_inputs(
    step: &mut Step<'_, Model, memtier::Eager<memtier::Host>>,
    batch: &Batch,
    sequences: &[Option<Sequence>],
) -> Result<(), EngineError> {
    let Step { buffers: ModelView { work, table, window_table, .. }, on, .. } = step;
    for (row, ..) in &batch.shares {
        let Some(sequence) = &sequences[*row] else { continue };
        table.set(on, *row, &sequence.kv)?;
        if let (Some(table), Some(ticket)) = (window_table.as_mut(), &sequence.window) {
            table.set(on, *row, ticket)?;
        }
    }
    on.write(&mut work.tokens, &batch.tokens)?;
    on.write(&mut work.rows, &batch.rows)?;
    on.write(&mut work.positions, &batch.positions)?;
    on.write(&mut work.lengths, &batch.lengths)?;
    on.write(&mut work.picks, &batch.picks)?;
    on.write(&mut work.sampling, &batch.sampling)?;
    on.write(&mut work.random, &batch.random)?;
    Ok(())
}

#[allow(dead_code, reason = "documents that the engine crosses threads")]
fn crosses_threads(llm: Llm) -> impl Send {
    llm
}

#[allow(dead_code, reason = "documents which error a step has")]
fn step_error(error: StepError) -> EngineError {
    error.into()
}
