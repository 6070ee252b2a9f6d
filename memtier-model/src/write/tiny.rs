//! Tiny models with random weights, for tests that need a whole model and not a good one.

use super::{GgufWriter, WriteError};
use crate::describe::Architecture;

/// The dimensions of a tiny model. Weights are 32-bit floats from a generator seeded with `seed`, so two equal values
/// give equal files. The vocabulary is `<unk>`, `<s>`, `</s>`, the 256 byte tokens and fillers, read by the `llama`
/// tokenizer.
///
/// ```
/// use memtier_model::{Gguf, ModelDescription, write::TinyModel};
/// let file = TinyModel { layers: 3, ..TinyModel::llama(7) }.to_gguf()?.to_bytes();
/// let model = ModelDescription::from_gguf(&Gguf::from_bytes(&file)?)?;
/// assert_eq!(model.layers.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TinyModel {
    /// Which architecture's tensors and keys to write.
    pub architecture: Architecture,
    /// Layers.
    pub layers: u32,
    /// Elements of the residual stream.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head, even.
    pub head_dim: u32,
    /// Elements between the feed-forward projections.
    pub feed_forward: u32,
    /// Tokens, at least 259 for a whole tokenizer.
    pub vocab: u32,
    /// Tokens of the context.
    pub context: u32,
    /// Tokens of the sliding window (Gemma 3 only).
    pub window: u32,
    /// What the weights are drawn from.
    pub seed: u64,
}

impl TinyModel {
    /// A Llama with two layers and grouped heads.
    pub fn llama(seed: u64) -> TinyModel {
        TinyModel {
            architecture: Architecture::Llama,
            layers: 2,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            feed_forward: 96,
            vocab: 288,
            context: 256,
            window: 0,
            seed,
        }
    }

    /// A Gemma 3 with seven layers, the sixth of which attends over everything, and a window of 8 tokens.
    pub fn gemma3(seed: u64) -> TinyModel {
        TinyModel { architecture: Architecture::Gemma3, layers: 7, window: 8, ..TinyModel::llama(seed) }
    }

    /// The model as a file.
    ///
    /// # Errors
    /// None for dimensions of at least 1; [`WriteError::Shape`] where they multiply beyond what a file can hold.
    pub fn to_gguf(&self) -> Result<GgufWriter, WriteError> {
        let mut file = GgufWriter::new();
        self.keys(&mut file);
        self.tokenizer(&mut file);
        self.tensors(&mut file)?;
        Ok(file)
    }

    fn keys(&self, file: &mut GgufWriter) {
        let architecture = self.architecture.name();
        let key = |name: &str| format!("{architecture}.{name}");
        file.string("general.architecture", architecture)
            .string("general.name", "tiny")
            .u32(&key("block_count"), self.layers)
            .u32(&key("embedding_length"), self.hidden)
            .u32(&key("feed_forward_length"), self.feed_forward)
            .u32(&key("attention.head_count"), self.heads)
            .u32(&key("attention.head_count_kv"), self.kv_heads)
            .u32(&key("attention.key_length"), self.head_dim)
            .u32(&key("attention.value_length"), self.head_dim)
            .u32(&key("context_length"), self.context)
            .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
            .f32(&key("rope.freq_base"), 10_000.0);
        if self.architecture == Architecture::Gemma3 {
            file.u32(&key("attention.sliding_window"), self.window);
        }
    }

    fn tokenizer(&self, file: &mut GgufWriter) {
        const UNKNOWN: i32 = 2;
        const CONTROL: i32 = 3;
        const NORMAL: i32 = 1;
        const BYTE: i32 = 6;
        let token = |id: u32| match id {
            0 => ("<unk>".to_owned(), UNKNOWN),
            1 => ("<s>".to_owned(), CONTROL),
            2 => ("</s>".to_owned(), CONTROL),
            3..=258 => (format!("<0x{:02X}>", id - 3), BYTE),
            _ => (format!("filler{id}"), NORMAL),
        };
        let (tokens, types): (Vec<_>, Vec<_>) = (0..self.vocab).map(token).unzip();
        let scores: Vec<f32> = (0..self.vocab).map(|id| -(id as f32)).collect();
        file.string("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", &tokens)
            .f32s("tokenizer.ggml.scores", &scores)
            .i32s("tokenizer.ggml.token_type", &types)
            .u32("tokenizer.ggml.bos_token_id", 1)
            .u32("tokenizer.ggml.eos_token_id", 2)
            .u32("tokenizer.ggml.unknown_token_id", 0);
    }

    fn tensors(&self, file: &mut GgufWriter) -> Result<(), WriteError> {
        let gemma = self.architecture == Architecture::Gemma3;
        let (hidden, size, dim) = (self.hidden.into(), self.feed_forward.into(), u64::from(self.head_dim));
        let (queries, keys) = (dim * u64::from(self.heads), dim * u64::from(self.kv_heads));
        let mut random = Random(self.seed);
        let mut weights = |file: &mut GgufWriter, name: String, dims: &[u64]| {
            let values = match dims {
                // Norms are near 1, projections keep the size of what passes through them.
                [len] => (0..*len).map(|_| 1.0 + 0.1 * random.symmetric()).collect(),
                _ => {
                    let spread = (3.0 / dims.first().map_or(1.0, |&row| row as f32)).sqrt();
                    (0..dims.iter().product()).map(|_| spread * random.symmetric()).collect::<Vec<f32>>()
                }
            };
            file.tensor_f32(&name, dims, &values).map(drop)
        };

        weights(file, "token_embd.weight".into(), &[hidden, self.vocab.into()])?;
        weights(file, "output_norm.weight".into(), &[hidden])?;
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
            weights(file, name("attn_norm"), &[hidden])?;
            weights(file, name("attn_q"), &[hidden, queries])?;
            weights(file, name("attn_k"), &[hidden, keys])?;
            weights(file, name("attn_v"), &[hidden, keys])?;
            weights(file, name("attn_output"), &[queries, hidden])?;
            weights(file, name("ffn_norm"), &[hidden])?;
            weights(file, name("ffn_gate"), &[hidden, size])?;
            weights(file, name("ffn_up"), &[hidden, size])?;
            weights(file, name("ffn_down"), &[size, hidden])?;
            if gemma {
                weights(file, name("attn_q_norm"), &[dim])?;
                weights(file, name("attn_k_norm"), &[dim])?;
                weights(file, name("post_attention_norm"), &[hidden])?;
                weights(file, name("post_ffw_norm"), &[hidden])?;
            }
        }
        Ok(())
    }
}

/// SplitMix64: small, seedable, and good enough for weights that nobody reads.
struct Random(u64);

impl Random {
    /// The next number of -1 to 1.
    fn symmetric(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 24 bits are what a float holds exactly.
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
