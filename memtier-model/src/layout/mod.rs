//! What a model keeps in memory: the one description that every reader fills and the planner consumes.
//!
//! [`ModelLayout`] says of each layer what it caches for a token (heads, dimensions, window, latent), which recurrent
//! state it keeps for a sequence, and what its weights take, tensor by tensor. It is made from a GGUF
//! ([`ModelLayout::from_gguf`]) or from a folder of safetensors with a `config.json`
//! ([`Checkpoint::layout`](crate::safetensors::Checkpoint::layout)), without the tensors' data and without knowing how
//! a forward pass is computed: that is [`ModelDescription`](crate::ModelDescription), for fewer architectures.
//!
//! An architecture is one file under `arch/`, shared by both readers: a `config.json` is first put into the
//! vocabulary of GGUF's keys. An architecture that is not known there is still laid out when its keys and tensors say
//! enough, with a [`LayoutWarning`]; otherwise it is refused by name.
//!
//! ```
//! use memtier_model::layout::ModelLayout;
//! use memtier_model::{Gguf, write::TinyModel};
//!
//! let file = TinyModel::gemma3(1).to_gguf()?.to_bytes();
//! let layout = ModelLayout::from_gguf(&Gguf::from_bytes(&file)?)?;
//! let windows: Vec<_> = layout.layers.iter().map(|layer| layer.cache.and_then(|cache| cache.window)).collect();
//! assert_eq!(windows, [Some(8), Some(8), Some(8), Some(8), Some(8), None, Some(8)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapter;
mod arch;
mod error;
pub(crate) mod facts;
mod from_gguf;
mod vision;
mod weights;

pub use adapter::Adapter;
pub use arch::known_architectures;
pub use error::{LayoutError, LayoutWarning};
pub use vision::Vision;
pub use weights::{Place, Share, Weight};

pub(crate) use arch::lay_out;

/// What a model keeps in memory. Sizes are in elements unless they say bytes, lengths in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelLayout {
    /// The architecture, as its file names it.
    pub architecture: String,
    /// The model's own name, when it has one.
    pub name: Option<String>,
    /// Tokens of the vocabulary; zero when the file does not say (then it has no output either).
    pub vocab_size: u64,
    /// Elements of the residual stream.
    pub hidden_size: u64,
    /// Tokens that the model was trained to attend over; `None` when the file does not say.
    pub context_length: Option<u64>,
    /// The layers of the model proper, first to last.
    pub layers: Vec<LayerMemory>,
    /// Layers that only draft (MTP, NextN): loaded and cached when speculation is on.
    pub draft_layers: Vec<LayerMemory>,
    /// Routed experts of a layer and how many of them a token uses; zeros for a dense model.
    pub experts: Experts,
    /// Every tensor.
    pub weights: Vec<Weight>,
    /// The vision tower and its projector.
    pub vision: Option<Vision>,
    /// LoRA adapters that are loaded beside the model.
    pub adapters: Vec<Adapter>,
    /// What had to be assumed.
    pub warnings: Vec<LayoutWarning>,
}

/// Routed experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Experts {
    /// Experts of a layer.
    pub count: u64,
    /// Experts a token passes through.
    pub used: u64,
    /// Elements between an expert's projections.
    pub size: u64,
}

/// What one layer keeps besides its weights. A layer may attend and recur (Falcon-H1), or do neither (the feed-forward
/// layers of Nemotron-H).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerMemory {
    /// Query heads; zero when the layer does not attend.
    pub heads: u64,
    /// Elements between the feed-forward projections; zero without one.
    pub feed_forward: u64,
    /// What a token leaves in the cache.
    pub cache: Option<LayerCache>,
    /// What a sequence keeps whatever its length.
    pub state: Option<LayerState>,
}

/// What a token leaves in the cache of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerCache {
    /// Key and value heads; one for a latent that all heads share.
    pub kv_heads: u64,
    /// Elements of a key head.
    pub key_dim: u64,
    /// Elements of a value head; zero when values are read out of the keys (MLA).
    pub value_dim: u64,
    /// Tokens that a token sees, itself among them; `None` is all before it.
    pub window: Option<u64>,
    /// Elements of the index key by which sparse attention chooses tokens (DSA); zero without one.
    pub indexer: u64,
}

impl LayerCache {
    /// Elements of key and value of one token, without the index key.
    pub const fn elements(&self) -> u64 {
        self.kv_heads.saturating_mul(self.key_dim.saturating_add(self.value_dim))
    }
}

/// What one recurrent layer keeps for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerState {
    /// Elements of the convolution's last inputs.
    pub conv: u64,
    /// Elements of the state proper.
    pub state: u64,
    /// Elements of a token that pass the convolution: what scratch is made of.
    pub channels: u64,
    /// Elements of a token that come out of the recurrence.
    pub inner: u64,
}

impl ModelLayout {
    /// Elements of key and value that one token leaves in the caches of all layers, windowed ones among them.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.layers.iter().filter_map(|layer| layer.cache).map(|cache| cache.elements()).fold(0, u64::saturating_add)
    }

    /// Bytes of the weights in one place.
    pub fn weight_bytes(&self, which: impl Fn(&Weight) -> bool) -> u64 {
        // A reader has found each of them within its file, so only hostile headers could saturate this.
        self.weights.iter().filter(|weight| which(weight)).map(|weight| weight.bytes).fold(0, u64::saturating_add)
    }
}
