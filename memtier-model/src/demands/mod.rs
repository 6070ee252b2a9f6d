//! What a model asks of the planner: a [`ModelLayout`] and a [`Config`] to [`Demand`]s.
//!
//! Everything that a configuration makes a model take is a line: weights by part, the caches of each group of layers,
//! recurrent state, forward scratch, logits, page tables, the vision tower and its scratch, adapters, what the load
//! needs for a while. [`Pricing`] is pure, so the planner may call it again and again to find levers:
//!
//! ```
//! use memtier::plan::{Config, Limits, PlanInput, plan_memory};
//! use memtier::{Bytes, Tokens};
//! use memtier_model::demands::Pricing;
//! use memtier_model::{Gguf, ModelLayout, write::TinyModel};
//!
//! let file = TinyModel::llama(7).to_gguf()?.to_bytes();
//! let layout = ModelLayout::from_gguf(&Gguf::from_bytes(&file)?)?;
//! let pricing = Pricing::new(&layout, "cuda");
//! let config = Config { max_seq_len: Tokens::new(256), ..pricing.config() };
//! let demands = pricing.demands(&config)?;
//! let reprice = |config: &Config| pricing.demands(config);
//! let limits = Limits::new("cuda", Bytes::mib(16));
//! let plan = plan_memory(&PlanInput { reprice: Some(&reprice), ..PlanInput::new(limits, config, &demands) })?;
//! // 2 layers of 2 heads of 16, keys and values in 16 bits, 256 tokens.
//! assert_eq!(plan.line("KV").map(|line| line.granted), Some(Bytes::new(2 * 2 * 16 * 2 * 2 * 256)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod caches;
mod llama_cpp;
mod portion;
mod scratch;
mod vllm;

use memtier::plan::{Config, Demand, KvDtype, Tier};
use memtier::{Blocks, Bytes, Layers, Overflow, Tokens};

use crate::layout::{ModelLayout, Place, Share};

pub use llama_cpp::{LlamaCpp, LlamaCppBytes};
pub use portion::{Portion, SplitKind, split};
pub use vllm::{VllmBytes, vllm};

/// Host memory, where layers go that are not on the device.
pub const HOST: &str = "host";

/// Bytes of the weights of one layer, by how they are divided.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct LayerBytes {
    /// Needed whole by every device of a tensor split.
    whole: u64,
    /// Divided by heads, columns or rows.
    divided: u64,
    /// Routed experts.
    experts: u64,
}

impl LayerBytes {
    fn add(&mut self, share: Share, bytes: u64) {
        let sum = match share {
            Share::Whole => &mut self.whole,
            Share::Experts => &mut self.experts,
            Share::Heads | Share::Columns | Share::Vocabulary => &mut self.divided,
        };
        *sum = sum.saturating_add(bytes);
    }

    fn part(&self, parts: u64) -> Result<Bytes, Overflow> {
        let parts = parts.max(1);
        Bytes::new(self.whole).plus(Bytes::new(self.divided.div_ceil(parts)))?.plus(self.experts_part(parts))
    }

    fn experts_part(&self, parts: u64) -> Bytes {
        Bytes::new(self.experts.div_ceil(parts.max(1)))
    }
}

/// Prices a model. Made once, then asked for as many configurations as wanted.
#[derive(Clone, Debug)]
pub struct Pricing<'a> {
    layout: &'a ModelLayout,
    space: &'static str,
    /// Element type of cached values where it differs from that of keys.
    value_dtype: Option<KvDtype>,
    /// Host memory for blocks of finished sequences.
    host_cache: Bytes,
    layers: Vec<LayerBytes>,
    embedding: LayerBytes,
    output: LayerBytes,
    drafts: LayerBytes,
    vision: Bytes,
    largest: u64,
}

impl<'a> Pricing<'a> {
    /// Prices `layout`, with what is not on the host in `space`.
    pub fn new(layout: &'a ModelLayout, space: &'static str) -> Self {
        let mut pricing = Pricing {
            layout,
            space,
            value_dtype: None,
            host_cache: Bytes::ZERO,
            layers: vec![LayerBytes::default(); layout.layers.len()],
            embedding: LayerBytes::default(),
            output: LayerBytes::default(),
            drafts: LayerBytes::default(),
            vision: Bytes::ZERO,
            largest: 0,
        };
        for weight in &layout.weights {
            pricing.largest = pricing.largest.max(weight.bytes);
            let part = match weight.place {
                Place::Layer(layer) => pricing.layers.get_mut(layer as usize),
                Place::Embedding => Some(&mut pricing.embedding),
                Place::Output => Some(&mut pricing.output),
                Place::Draft => Some(&mut pricing.drafts),
                Place::Vision => {
                    pricing.vision = Bytes::new(pricing.vision.count().saturating_add(weight.bytes));
                    None
                }
            };
            if let Some(part) = part {
                part.add(weight.share, weight.bytes);
            }
        }
        pricing
    }

    /// The same with cached values of another element type than keys.
    #[must_use]
    pub fn value_dtype(mut self, dtype: Option<KvDtype>) -> Self {
        self.value_dtype = dtype;
        self
    }

    /// The same with host memory for the blocks of finished sequences.
    #[must_use]
    pub fn host_cache(mut self, bytes: Bytes) -> Self {
        self.host_cache = bytes;
        self
    }

    /// The model.
    pub fn layout(&self) -> &'a ModelLayout {
        self.layout
    }

    /// A configuration for this model: all its layers, its context up to 4096 tokens, and no weight caches.
    pub fn config(&self) -> Config {
        let trained = self.layout.context_length.unwrap_or(u64::MAX).max(1);
        Config {
            layers: Layers::new(self.layout.layers.len() as u64),
            max_seq_len: Tokens::new(trained.min(4096)),
            vision: self.layout.vision.is_some(),
            weight_caches: false,
            ..Config::default()
        }
    }

    /// Bytes of the weights of each layer, for the offload plan.
    pub fn layer_bytes(&self) -> Vec<u64> {
        self.layers.iter().map(|layer| layer.part(1).map_or(u64::MAX, Bytes::count)).collect()
    }

    /// Bytes of the weights outside all layers: they follow the device only when every layer does.
    ///
    /// # Errors
    /// [`Overflow`] past `u64::MAX`.
    pub fn bytes_outside(&self) -> Result<Bytes, Overflow> {
        self.embedding.part(1)?.plus(self.output.part(1)?)
    }

    /// All that the model asks for under `config`, on one device and the host.
    ///
    /// # Errors
    /// [`Overflow`] when a size leaves the range of 64 bits.
    pub fn demands(&self, config: &Config) -> Result<Vec<Demand>, Overflow> {
        let all = self.layout.layers.len() as u64;
        let on_device = config.gpu_layers.map_or(all, |layers| layers.count().min(all));
        let whole = on_device == all;
        let mut demands = Vec::new();
        let device = Portion { layers: 0..on_device, embedding: whole, output: whole, parts: 1 };
        self.portion(&device, config, self.space, &mut demands)?;
        if !whole {
            let host = Portion { layers: on_device..all, embedding: true, output: true, parts: 1 };
            self.portion(&host, config, HOST, &mut demands)?;
        }
        self.beside(config, &mut demands)?;
        Ok(demands)
    }

    /// What one device asks for when several share the model.
    ///
    /// # Errors
    /// [`Overflow`] when a size leaves the range of 64 bits.
    pub fn demands_of(&self, portion: &Portion, config: &Config) -> Result<Vec<Demand>, Overflow> {
        let mut demands = Vec::new();
        self.portion(portion, config, self.space, &mut demands)?;
        if portion.embedding {
            self.beside(config, &mut demands)?;
        }
        Ok(demands)
    }

    /// Tokens in one forward pass: a chunk of a prompt, or one step of all sequences with their drafts.
    fn tokens_in_flight(config: &Config) -> Result<u64, Overflow> {
        let step = config.speculative_depth.checked_add(1).and_then(|each| each.checked_mul(config.max_batch));
        Ok(config.prefill_chunk.count().max(step.ok_or(Overflow)?).max(1))
    }

    /// Tower, adapters and what is on the host: once, whoever has the layers.
    fn beside(&self, config: &Config, demands: &mut Vec<Demand>) -> Result<(), Overflow> {
        if config.vision
            && let Some(vision) = &self.layout.vision
        {
            demands.push(Demand::bytes("vision tower", Tier::ModelResident, self.space, self.vision));
            let scratch = scratch::vision(vision)?;
            if !scratch.is_zero() && vision.patches() > 0 {
                demands.push(Demand::bytes("vision scratch, one image", Tier::ForwardScratch, self.space, scratch));
            }
        }
        for (number, adapter) in self.layout.adapters.iter().enumerate() {
            let name = adapter.name.clone().unwrap_or_else(|| format!("{}", number + 1));
            let bytes = Bytes::new(adapter.bytes);
            demands.push(Demand::bytes(format!("LoRA adapter {name}"), Tier::ModelResident, self.space, bytes));
        }
        // Uploads go through host memory one tensor at a time.
        let staging = Bytes::new(self.largest);
        demands.push(Demand::bytes("upload staging, largest tensor", Tier::HostStaging, HOST, staging));
        if !self.host_cache.is_zero() {
            demands.push(Demand::bytes("prefix cache, host tier", Tier::HostPinned, HOST, self.host_cache));
        }
        Ok(())
    }

    /// Rows of logits of one step: every sequence, with its drafts.
    fn logits(&self, config: &Config, parts: u64) -> Result<Bytes, Overflow> {
        let rows = config.speculative_depth.checked_add(1).and_then(|each| each.checked_mul(config.max_batch));
        // 32-bit floats, whatever the weights are.
        let row = self.layout.vocab_size.div_ceil(parts.max(1)).checked_mul(4).ok_or(Overflow)?;
        Bytes::new(row).times(rows.ok_or(Overflow)?)
    }
}

/// A pool of equal slabs, one a sequence.
fn slabs(name: &'static str, space: &'static str, slab: Bytes, count: u64) -> Demand {
    let amount = memtier::plan::Amount::fixed_pool(slab, Tokens::ZERO, Blocks::new(count));
    Demand::pool(name, space, amount)
}
