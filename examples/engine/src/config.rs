//! What the operator asks for.

use std::path::PathBuf;

use memtier::{
    Bytes, Tokens,
    admission::{self, CostModel},
    plan::{Config, KvDtype, Locks},
    pressure::{Ladder, Rungs},
};

use memtier_model::ModelDescription;

use crate::{
    EngineError, ModelFile,
    arch::{Arch, Group},
    kv_types::KvTypes,
    offload::GpuLayers,
    ops,
    streaming::Streaming,
    weights::GpuWeights,
};

/// Settings of an engine. `Default` serves four sequences of up to 2048 tokens on all cores.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The most that plan and engine may take.
    pub budget: Bytes,
    /// Layers on the device, a prefix; `None` serves from one memory. With it `budget` is the host's and `vram_budget` the
    /// device's.
    pub gpu_layers: Option<GpuLayers>,
    /// Where the library reserve that a start measured is kept for the next one; `None` measures and keeps nothing.
    pub reserve_file: Option<PathBuf>,
    /// Sequences served at once.
    pub max_batch: usize,
    /// Tokens of one sequence, prompt and answer.
    pub max_seq_len: usize,
    /// Tokens of one block: a multiple of 16.
    pub block_tokens: usize,
    /// Prompt tokens of one forward pass.
    pub prefill_chunk: usize,
    /// Threads of the CPU operations.
    pub threads: usize,
    /// Whether prompts that start like earlier ones start with their blocks.
    pub prefix_cache: bool,
    /// Copies of a sliding window that are kept for that: a prompt is found where one is. Nothing for models without a window.
    pub window_snapshots: usize,
    /// Blocks of a second tier, where cached prefixes go that the pool has no room for; 0 is off.
    pub cold_blocks: usize,
    /// Copies of a sliding window beside that tier. Nothing for models without a window.
    pub cold_snapshots: usize,
    /// Blocks that go to the second tier after each pass while free ones are scarce, before a request needs the room; 0 copies when
    /// it does.
    pub spill_ahead: usize,
    /// Where cached prefixes are saved and loaded; `None` forgets them with the process.
    pub prefix_store: Option<PathBuf>,
    /// Tokens that a request guesses ahead in each pass, from what it has seen; 0 is off. A guess is taken if it is the token that its
    /// position's logits and random number choose, so no answer differs, at no temperature.
    pub draft: usize,
    /// Settings that a refusal must not suggest to change.
    pub locks: Locks,
    /// What may be used of the device; bounds [`budget`](Self::budget).
    pub vram_budget: Option<Bytes>,
    /// Requests that run at once; the others wait. At most, and by default, `max_batch`.
    pub max_slots: Option<usize>,
    /// Lets sequences run past `max_seq_len`, which is then what one holds at most.
    pub streaming: Option<Streaming>,
    /// The element type of keys and values, layer by layer.
    pub kv_types: KvTypes,
    /// Whether rows of `q4_0` are rotated before they are rounded: more accurate, and the same bytes.
    pub kv_rotation: bool,
    /// The latest tokens of each sequence that are seen as they were before rounding; 0 is off. For smaller types than f16.
    pub kv_residual: usize,
    /// A smaller KV element type, of which there is a pool for requests that start while memory is short.
    pub kv_low: Option<KvDtype>,
    /// Decode passes that are recorded and replayed, one for each number of requests; 0 launches all of them one by one.
    pub graphs: usize,
    /// Whether the logits of an answer, and so its tokens, are the same to the bit whatever is served beside it. On a GPU this takes kernels that are slower for few or
    /// for many requests.
    pub batch_invariant: bool,
    /// How a GPU keeps weight matrices; `None` is its default. The CPU keeps them as they are in the file.
    pub gpu_weights: Option<GpuWeights>,
    /// Whether cuBLASLt multiplies the rows of prompts on a GPU, where it is installed: by default. Never where answers are
    /// [`batch_invariant`](Self::batch_invariant).
    pub cublaslt: bool,
    /// Requests that may wait.
    pub queue: usize,
    /// Levels, ladder and admission.
    pub pressure: admission::Settings,
    /// What prompts cost, measured; `None` takes the scratch formula.
    pub costs: Option<CostModel>,
}

/// Longer contexts than this no model that is known was trained on.
const MOST_TOKENS: usize = 1 << 24;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            budget: Bytes::gib(2),
            gpu_layers: None,
            reserve_file: None,
            max_batch: 4,
            max_seq_len: 2048,
            block_tokens: 16,
            prefill_chunk: 512,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            prefix_cache: true,
            window_snapshots: 2,
            cold_blocks: 0,
            cold_snapshots: 8,
            spill_ahead: 8,
            prefix_store: None,
            draft: 0,
            locks: Locks::default(),
            vram_budget: None,
            max_slots: None,
            streaming: None,
            kv_types: KvTypes::default(),
            kv_rotation: true,
            kv_residual: 0,
            kv_low: None,
            graphs: 0,
            batch_invariant: false,
            gpu_weights: None,
            cublaslt: true,
            queue: 64,
            pressure: admission::Settings::default(),
            costs: None,
        }
    }
}

fn setting(name: &'static str, value: impl ToString, remedy: impl Into<String>) -> EngineError {
    EngineError::Setting { name, value: value.to_string(), remedy: remedy.into() }
}

impl Settings {
    /// Refuses what no engine can be built with.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names the setting, its value and what to use.
    pub fn check(&self) -> Result<(), EngineError> {
        let within = |name, value: usize, most: usize| match value {
            0 => Err(setting(name, value, "use at least 1")),
            value if value > most => Err(setting(name, value, format!("use at most {most}"))),
            _ => Ok(()),
        };
        within("max-batch", self.max_batch, ops::MAX_ROWS)?;
        within("max-seq-len", self.max_seq_len, MOST_TOKENS)?;
        within("prefill-chunk", self.prefill_chunk, MOST_TOKENS)?;
        within("threads", self.threads, 1024)?;
        within("block-tokens", self.block_tokens, 1 << 16)?;
        within("max-slots", self.max_slots.unwrap_or(1), self.max_batch)?;
        within("queue", self.queue, 1 << 16)?;
        within("graphs", self.graphs.max(1), ops::MAX_ROWS)?;
        self.kv_types.check()?;
        if let Some(streaming) = &self.streaming {
            within("stream-len", streaming.most, MOST_TOKENS)?;
            streaming.check(self.max_seq_len, self.block_tokens)?;
            if self.kv_low.is_some() || self.gpu_layers.is_some() {
                let remedy = "blocks are released from one pool: leave out --kv-low and --gpu-layers";
                return Err(setting("stream-window", streaming.window, remedy));
            }
        }
        within("kv-residual", self.kv_residual.max(1), 1 << 16)?;
        if self.kv_residual > 0 && (self.kv_low.is_some() || self.gpu_layers.is_some()) {
            let remedy = "there are rings beside one pool: leave out --kv-low and --gpu-layers";
            return Err(setting("kv-residual", self.kv_residual, remedy));
        }
        if let (Some(low), true) = (self.kv_low, self.gpu_layers.is_some()) {
            return Err(setting("kv-low", low, "layers on a device have one pool: leave out --gpu-layers"));
        }
        if self.graphs > 0 && self.gpu_layers.is_some() {
            return Err(setting(
                "graphs",
                self.graphs,
                "passes over two devices are not recorded: leave out --gpu-layers",
            ));
        }
        within("cold-blocks", self.cold_blocks.max(1), 1 << 24)?;
        for (name, is_set) in [("cold-blocks", self.cold_blocks > 0), ("prefix-store", self.prefix_store.is_some())] {
            if is_set && !self.prefix_cache {
                return Err(setting(name, "set", "it keeps cached prefixes: leave out --no-prefix-cache"));
            }
        }
        if self.cold_blocks > 0 && self.gpu_layers.is_some() {
            return Err(setting("cold-blocks", "set", "a second tier is of one pool: leave out --gpu-layers"));
        }
        within("draft", self.draft.max(1), 64)?;
        within("window-snapshots", self.window_snapshots.max(1), 1 << 10)?;
        within("cold-snapshots", self.cold_snapshots.max(1), 1 << 16)?;
        within("spill-ahead", self.spill_ahead.max(1), 1 << 16)?;
        self.ladder()?;
        if !self.block_tokens.is_multiple_of(16) {
            return Err(setting("block-tokens", self.block_tokens, "use a multiple of 16"));
        }
        if self.budget.is_zero() {
            return Err(setting("budget", self.budget, "give the engine some memory, 512MiB for example"));
        }
        Ok(())
    }

    /// The model under these settings.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] and its like.
    pub(crate) fn arch(&self, file: &ModelFile) -> Result<Arch, EngineError> {
        let description = ModelDescription::from_gguf(file.gguf())?;
        let snapshots = if self.prefix_cache { self.window_snapshots } else { 0 };
        let mut arch = Arch::new(file, &description, self.block_tokens)?.with_snapshots(snapshots);
        arch = arch.with_kv_types(&self.kv_types, self.kv_rotation)?;
        if let Some(streaming) = self.streaming {
            if arch.layers.iter().any(|layer| layer.group == Group::Global && layer.kv.params.window.is_some()) {
                let what = "streaming of a model whose layers all have a sliding window".to_owned();
                return Err(EngineError::Unsupported { what, why: "leave out --stream-window" });
            }
            arch.streaming = Some(streaming);
        }
        arch.cold_blocks = self.cold_blocks;
        // A prompt starts where there is a copy of its window.
        arch.cold_snapshots = if arch.window > 0 && self.cold_blocks > 0 { self.cold_snapshots } else { 0 };
        if self.kv_residual > 0 {
            arch = arch.with_ring(self.kv_residual)?;
        }
        arch.batch_invariant = self.batch_invariant;
        arch.gpu_weights = self.gpu_weights.unwrap_or_default();
        match self.kv_low {
            Some(low) => arch.with_low(low, self.kv_rotation),
            None => Ok(arch),
        }
    }

    /// Tokens of one sequence, prompt and answer.
    pub fn most_tokens(&self) -> usize {
        self.streaming.map_or(self.max_seq_len, |streaming| streaming.most)
    }

    /// Requests that run at once.
    pub fn slots(&self) -> u32 {
        let slots = self.max_slots.unwrap_or(self.max_batch).min(self.max_batch);
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// The ladder, over the KV element types that this engine has pools of.
    ///
    /// # Errors
    /// [`EngineError::Setting`]: rungs that are no ladder, or a `kv.to` that no pool has.
    pub fn ladder(&self) -> Result<Ladder, EngineError> {
        let asked = self.pressure.rungs.kv_to;
        // Without a pool of smaller elements the rung has nowhere to go, and reduces nothing.
        let kept = self.kv_types.rest;
        let there = self.kv_low.unwrap_or(kept);
        if asked != Rungs::default().kv_to && asked != there {
            let remedy = match self.kv_low {
                None => format!("this engine's pool holds {kept}"),
                Some(low) => format!("this engine's pools hold {kept} and {low}"),
            };
            return Err(setting("kv.to", asked, remedy));
        }
        let pressure =
            admission::Settings { rungs: Rungs { kv_to: there, ..self.pressure.rungs }, ..self.pressure.clone() };
        pressure.ladder().map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            setting("the ladder", "no ladder", errors.join("; "))
        })
    }

    /// The same for the planner.
    pub fn config(&self, arch: &Arch) -> Config {
        Config {
            max_batch: self.max_batch as u64,
            max_seq_len: Tokens::new(self.max_seq_len as u64),
            block_tokens: Tokens::new(self.block_tokens as u64),
            prefill_chunk: Tokens::new(self.prefill_chunk as u64),
            // One choice only: nothing but the operator changes it.
            kv_dtype: self.kv_types.rest,
            kv_dtypes: &[],
            speculative_depth: self.draft as u64,
            weight_caches: false,
            layers: memtier::Layers::new(arch.layers.len() as u64),
            ..Config::default()
        }
    }
}
