//! One layer of a described model.

/// A layer: what mixes tokens, and what follows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Layer {
    /// Its place, from 0; its tensors begin with `blk.{index}.`.
    pub index: u32,
    /// What mixes tokens.
    pub kind: LayerKind,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

impl Layer {
    /// The attention of the layer, when it attends.
    pub fn attention(&self) -> Option<&Attention> {
        match &self.kind {
            LayerKind::Attention(attention) => Some(attention),
        }
    }

    /// Elements of key and value that the layer caches for one token.
    pub fn kv_elements_per_token(&self) -> u64 {
        self.attention().map_or(0, Attention::kv_elements_per_token)
    }
}

/// What mixes tokens in a layer. Recurrent and latent-attention layers will be further variants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LayerKind {
    /// Grouped-query attention with a key-value cache.
    Attention(Attention),
}

/// Grouped-query attention.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a query or key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// How far back a token sees.
    pub span: AttentionSpan,
    /// The rotary embedding of queries and keys.
    pub rope: Rope,
    /// What query-key products are multiplied with.
    pub scale: f32,
    /// Whether queries and keys pass an RMS norm (per head, over `key_dim`) before the rotary embedding.
    pub qk_norm: bool,
    /// Whether the projections of queries, keys and values add a bias.
    pub qkv_bias: bool,
    /// Whether the output projection adds a bias.
    pub output_bias: bool,
    /// Scores `x` become `cap * tanh(x / cap)`.
    pub softcap: Option<f32>,
}

impl Attention {
    /// Elements of key and value that one token takes in the cache.
    pub fn kv_elements_per_token(&self) -> u64 {
        u64::from(self.kv_heads) * (u64::from(self.key_dim) + u64::from(self.value_dim))
    }
}

/// How far back a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttentionSpan {
    /// Everything before it.
    Full,
    /// The last `tokens` tokens, itself among them: position `q` sees `k` when `q - k < tokens`.
    Window {
        /// Length of the window.
        tokens: u32,
    },
}

/// A rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// Elements of a head that are rotated; the first ones.
    pub dims: u32,
    /// The base of the frequencies: pair `i` turns by `base^(-2i/dims)` a position.
    pub base: f32,
    /// Which elements form a pair.
    pub layout: RopeLayout,
    /// How positions are stretched beyond the length of training.
    pub scaling: RopeScaling,
    /// Whether the tensor `rope_freqs.weight` divides the frequencies (Llama 3.1 and later).
    pub freq_factors: bool,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RopeLayout {
    /// Neighbours: `(2i, 2i + 1)`. GGUF files of `llama` have their weights permuted to this.
    Interleaved,
    /// Halves: `(i, i + dims / 2)`, GPT-NeoX's layout.
    Halves,
}

/// How positions are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by `factor`.
    Linear {
        /// The factor, above 0.
        factor: f32,
    },
    /// YaRN.
    Yarn {
        /// The factor, above 0.
        factor: f32,
        /// Tokens of the original training context.
        original_context: u32,
    },
}

/// The feed-forward part of a layer. Mixtures of experts will be a further variant.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FeedForward {
    /// `down(activation(gate(x)) * up(x))`.
    Gated {
        /// Elements between the projections.
        size: u32,
        /// What the gate passes through.
        activation: Activation,
    },
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// Where a layer has its RMS norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NormPlacement {
    /// Before attention and before feed-forward.
    Pre,
    /// Before and after each, the latter before the residual is added (`post_attention_norm`, `post_ffw_norm`).
    PreAndPost,
}
