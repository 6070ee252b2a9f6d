//! The bundle: everything the engine owns for one model, and all that a graph may bake in.

use engine_kernels::{QuantRows, RopeAngles};
use memtier::plan::{Config, Demand};
use memtier::{
    BlockPool, Blocks, Bundle, Bytes, Declare, GlobalKv, Host, Overflow, PageTable, PoolSpec, ResidualKv, SizeError,
    Space, Stream, StreamSpec, SwaKv, TableSpec, Tokens, f16, graph_captured,
};

use crate::{
    arch::Arch,
    compute::Compute,
    weights::{Weights, WorkDims, Workspace},
};

/// Blocks that a growable pool commits at a time.
const GROWTH: u64 = 64;

/// What the engine owns while serving.
#[graph_captured]
pub struct Model<S: Space = Host> {
    /// The weights, read-only after the load.
    pub weights: Weights<S>,
    /// What every step reads.
    pub work: Workspace<S>,
    /// Keys and values of layers that attend to the whole context. Blocks are counted in units of 16 bits, which are elements where
    /// they are f16; [`kv_types`](crate::kv_types) says what they are.
    pub kv: BlockPool<GlobalKv<f16>, S>,
    /// Which of these blocks each sequence has.
    pub table: PageTable<GlobalKv<f16>, S>,
    /// The same of smaller elements, for requests that start while memory is short.
    pub low: Option<BlockPool<GlobalKv<u16>, S>>,
    /// Which of these blocks each sequence has.
    pub low_table: Option<PageTable<GlobalKv<u16>, S>>,
    /// The latest tokens of each sequence in f16, where `kv` has smaller elements.
    pub ring: Option<BlockPool<ResidualKv<f16>, S>>,
    /// Which of these rings each sequence has.
    pub ring_table: Option<PageTable<ResidualKv<f16>, S>>,
    /// Cached blocks of `kv` that made room for others.
    pub cold: Option<BlockPool<GlobalKv<f16>, S>>,
    /// Keys and values of layers with a sliding window.
    pub window: Option<BlockPool<SwaKv<f16>, S>>,
    /// Which of these blocks each sequence has.
    pub window_table: Option<PageTable<SwaKv<f16>, S>>,
    /// Copies of windows, at the end of prefixes in `cold`.
    pub cold_window: Option<BlockPool<SwaKv<f16>, S>>,
}

/// Tokens of one forward pass: a whole prefill chunk, or one token and the drafts of every sequence.
pub fn pass_tokens(config: &Config) -> usize {
    config.prefill_chunk.count().max(picks(config) as u64) as usize
}

/// Tokens of one pass that want logits: the last of each sequence, and its drafts.
pub fn picks(config: &Config) -> usize {
    config.max_batch.saturating_mul(config.speculative_depth.saturating_add(1)) as usize
}

/// The sizes of a model's bundle under a configuration.
pub fn spec<S: Space>(arch: &Arch, config: &Config) -> ModelSpec<S> {
    let rows = config.max_batch as usize;
    let per_block = Tokens::new(arch.block_tokens as u64);
    let context = config.max_seq_len.in_blocks_of(per_block).count();
    // Blocks that were released leave holes, so a sequence that runs on has a longer table, and no more blocks.
    let longest = arch.streaming.map_or(config.max_seq_len, |streaming| Tokens::new(streaming.most as u64));
    let table = TableSpec { rows, columns: longest.in_blocks_of(per_block).count().max(context) as usize };
    let most = Blocks::new(context.saturating_mul(config.max_batch));
    let kv = PoolSpec {
        floor: Blocks::new(context),
        // One sequence of the advertised length is there from the start; more is committed when it is wanted.
        initial: Blocks::new(context),
        step: Blocks::new(GROWTH.min(context.max(1))),
        ..PoolSpec::fixed(per_block, arch.global_units, most)
    };
    // Nobody may ever need it: it starts with a block, and grows when somebody does.
    let low = PoolSpec { initial: Blocks::new(1), block_elements: arch.low_units, ..kv };
    let has_window = arch.window_units > 0;
    // Every sequence its window, and the tokens of one pass on top, wherever they go.
    let window = (arch.window_blocks() as u64).min(context.saturating_add(1)).saturating_mul(config.max_batch);
    let window = window
        .saturating_add(Tokens::new(pass_tokens(config) as u64).in_blocks_of(per_block).count())
        .saturating_add(1);
    let window = window.saturating_add((arch.window_snapshots as u64).saturating_mul(arch.window_blocks() as u64));
    let cold_window = (arch.cold_snapshots as u64).saturating_mul(arch.window_blocks() as u64);
    ModelSpec {
        weights: arch.weights.clone(),
        work: WorkDims { tokens: pass_tokens(config), rows, picks: picks(config), library: arch.library },
        kv,
        table,
        low: (arch.low_units > 0).then_some(low),
        low_table: (arch.low_units > 0).then_some(table),
        ring: arch.ring.map(|ring| PoolSpec::states(ring.units, Blocks::new(config.max_batch))),
        ring_table: arch.ring.map(|_| TableSpec { rows, columns: 1 }),
        cold: (arch.cold_blocks > 0)
            .then(|| PoolSpec::fixed(per_block, arch.global_units, Blocks::new(arch.cold_blocks as u64))),
        window: has_window.then(|| PoolSpec::fixed(per_block, arch.window_units, Blocks::new(window))),
        window_table: has_window.then_some(table),
        cold_window: (has_window && cold_window > 0)
            .then(|| PoolSpec::fixed(per_block, arch.window_units, Blocks::new(cold_window))),
    }
}

/// What one forward pass takes of the scratch stack, buffer by buffer, in units of their element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScratchUnits {
    /// The residual stream, and what is added to it: f32.
    pub hidden: usize,
    /// Normalised rows for float weights: f32.
    pub float: usize,
    /// Quantised rows of the widest input: u8.
    pub quantized: usize,
    /// Queries and the output of attention: f32.
    pub q: usize,
    /// Keys and values: f32.
    pub kv: usize,
    /// Between the feed-forward projections: f32.
    pub ffn: usize,
    /// Cosines and sines, for each rotary embedding: f32.
    pub angles: usize,
    /// Queries for the look at the sinks, of sequences that run past their planned length: f32. 0 without.
    pub sinks: usize,
    /// Quantised rows that want logits: u8.
    pub picked: usize,
    /// The same for a float head: f32.
    pub picked_float: usize,
    /// Logits: f32.
    pub logits: usize,
}

impl ScratchUnits {
    /// For a pass of `tokens` tokens, of which `picks` want logits.
    ///
    /// # Errors
    /// [`SizeError::Overflow`].
    pub fn new(arch: &Arch, tokens: usize, picks: usize) -> Result<Self, SizeError> {
        let widest =
            |of: fn(&crate::weights::LayerDims) -> usize| arch.weights.layers.iter().map(of).max().unwrap_or(1);
        let (q, kv, ffn) = (widest(|layer| layer.q_rows), widest(|layer| layer.kv_rows), widest(|layer| layer.ffn));
        let hidden = arch.weights.hidden;
        let angles = arch.ropes.iter().map(|rope| rope.dims).max().unwrap_or(2);
        let overflow = || SizeError::Overflow { field: "forward scratch" };
        let rows = |count: usize, columns: usize| count.checked_mul(columns).ok_or_else(overflow);
        let quant = |count: usize, columns: usize| QuantRows::bytes(count, columns).ok_or_else(overflow);
        let floats = usize::from(arch.floats);
        Ok(ScratchUnits {
            hidden: rows(tokens, hidden)?,
            float: rows(tokens, hidden.max(q).max(ffn) * floats)?.max(1),
            quantized: quant(tokens, hidden.max(q).max(ffn))?,
            q: rows(tokens, q)?,
            kv: rows(tokens, kv)?,
            ffn: rows(tokens, ffn)?,
            angles: RopeAngles::elements(tokens, angles).ok_or_else(overflow)?,
            sinks: if arch.streaming.is_some() { rows(tokens, q)? } else { 0 },
            picked: quant(picks, hidden)?,
            picked_float: rows(picks, hidden * floats)?.max(1),
            logits: rows(picks, arch.vocab())?,
        })
    }

    /// The bytes of all of them, each on a multiple of 256.
    ///
    /// # Errors
    /// [`SizeError::Overflow`].
    pub fn bytes(&self, ropes: usize) -> Result<Bytes, SizeError> {
        let ScratchUnits { hidden, float, quantized, q, kv, ffn, angles, sinks, picked, picked_float, logits } = *self;
        let floats = [hidden, hidden, float, q, q, kv, kv, ffn, sinks, picked_float, logits];
        // With sinks each embedding has angles for the look at them, too.
        let ropes = if sinks > 0 { 2 * ropes } else { ropes };
        let bytes = floats.into_iter().chain(std::iter::repeat_n(angles, ropes)).map(|units| (units, 4));
        let bytes = bytes.chain([(quantized, 1), (picked, 1)]);
        bytes
            .map(|(units, size)| Bytes::new(size).times(units as u64).and_then(|bytes| bytes.aligned(256)))
            .try_fold(Bytes::ZERO, |sum, bytes| sum.plus(bytes?))
            .map_err(|_: Overflow| SizeError::Overflow { field: "forward scratch" })
    }
}

/// The stream of a configuration: its scratch stack holds one forward pass.
///
/// # Errors
/// [`SizeError::Overflow`].
pub fn stream_spec<S: Compute>(arch: &Arch, config: &Config) -> Result<StreamSpec, SizeError> {
    Ok(StreamSpec { scratch: S::scratch(arch, pass_tokens(config), picks(config))? })
}

/// Everything the engine asks the planner for under a configuration, in the order in which it is declared.
///
/// # Errors
/// [`SizeError`] names the field.
pub fn demands<S: Compute>(arch: &Arch, config: &Config) -> Result<Vec<Demand>, SizeError> {
    let mut demands = <Model<S> as Bundle>::demands(&spec(arch, config))?;
    demands.extend(<Stream<S> as Declare>::demands(&stream_spec::<S>(arch, config)?)?);
    Ok(demands)
}
