//! Headers of real models, by their shapes: every key that decides memory and every tensor, without data.
//!
//! The shapes are those of the published models; the files are made here and never had weights.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test takes the models it needs")]

mod blocks;
mod configs;
mod mixes;
mod models;
mod more;

use memtier_model::gguf::Limits;
use memtier_model::write::GgufWriter;
use memtier_model::{Gguf, Header, ModelLayout, TensorType};

pub use configs::*;
pub use mixes::*;
pub use models::*;
pub use more::*;

/// A name and how to make the model.
pub type Entry = (&'static str, fn() -> Model);

/// A model under construction.
pub struct Model {
    pub file: GgufWriter,
    pub arch: &'static str,
    pub layers: u64,
    pub hidden: u64,
    pub vocab: u64,
    /// The type of matrices; norms and other vectors are 32-bit floats.
    pub quant: TensorType,
    /// The type of a matrix of its own, by name and number of layers.
    pub own: fn(&str, u64) -> Option<TensorType>,
}

impl Model {
    pub fn new(arch: &'static str, layers: u64, hidden: u64, vocab: u64, context: u32) -> Model {
        let mut model =
            Model { file: GgufWriter::new(), arch, layers, hidden, vocab, quant: TensorType::F16, own: |_, _| None };
        model.file.string("general.architecture", arch).string("tokenizer.ggml.model", "no_vocab");
        model.number("block_count", layers).number("embedding_length", hidden).number("vocab_size", vocab);
        model.number("context_length", context.into());
        model.file.f32(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6);
        model
    }

    pub fn number(&mut self, key: &str, value: u64) -> &mut Model {
        self.file.u32(&format!("{}.{key}", self.arch), u32::try_from(value).expect("a number of 32 bits"));
        self
    }

    pub fn numbers(&mut self, key: &str, values: &[u32]) -> &mut Model {
        self.file.u32s(&format!("{}.{key}", self.arch), values);
        self
    }

    pub fn flags(&mut self, key: &str, values: &[bool]) -> &mut Model {
        self.file.bools(&format!("{}.{key}", self.arch), values);
        self
    }

    pub fn float(&mut self, key: &str, value: f32) -> &mut Model {
        self.file.f32(&format!("{}.{key}", self.arch), value);
        self
    }

    /// Heads and the size of a key and a value.
    pub fn heads(&mut self, heads: u64, kv_heads: u64, key: u64, value: u64) -> &mut Model {
        self.number("attention.head_count", heads).number("attention.head_count_kv", kv_heads);
        self.number("attention.key_length", key).number("attention.value_length", value)
    }

    /// A matrix, by row length and rows.
    pub fn matrix(&mut self, name: &str, row: u64, rows: u64) -> &mut Model {
        let quant = (self.own)(name, self.layers).unwrap_or(self.quant);
        self.file.hole(name, &[row, rows], quant).expect("whole blocks");
        self
    }

    pub fn cube(&mut self, name: &str, dims: [u64; 3]) -> &mut Model {
        let quant = (self.own)(name, self.layers).unwrap_or(self.quant);
        self.file.hole(name, &dims, quant).expect("whole blocks");
        self
    }

    pub fn vector(&mut self, name: &str, len: u64) -> &mut Model {
        self.file.hole(name, &[len], TensorType::F32).expect("a vector");
        self
    }

    pub fn table(&mut self, name: &str, row: u64, rows: u64) -> &mut Model {
        self.file.hole(name, &[row, rows], TensorType::F32).expect("a table of floats");
        self
    }

    /// Embedding, final norm and output projection (`None` for tied).
    pub fn ends(&mut self, tied: bool) -> &mut Model {
        let (hidden, vocab) = (self.hidden, self.vocab);
        self.matrix("token_embd.weight", hidden, vocab).vector("output_norm.weight", hidden);
        if !tied {
            self.matrix("output.weight", hidden, vocab);
        }
        self
    }

    /// The layout that a reader makes of the header.
    pub fn layout(&self) -> ModelLayout {
        layout(&self.file).unwrap_or_else(|error| panic!("{}: {error}", self.arch))
    }
}

pub fn layout(file: &GgufWriter) -> Result<ModelLayout, memtier_model::LayoutError> {
    let header = file.header_bytes();
    let header = Header::parse_prefix(&header, file.file_size(), &Limits::default()).expect("a sound header");
    ModelLayout::from_gguf(&Gguf::from_headers(vec![header]).expect("one part"))
}

/// Every model, by a name for its file.
pub const ALL: &[Entry] = &[
    ("llama-3-8b", || llama(LLAMA_3_8B, TensorType::Q4_0, false)),
    ("llama-3.2-3b", || llama(LLAMA_3_2_3B, TensorType::Q4_0, true)),
    ("mistral-small-22b", || llama(MISTRAL_SMALL_22B, TensorType::Q6_K, false)),
    ("smollm2-135m", || llama(SMOLLM2_135M, TensorType::F16, true)),
    ("qwen3-0.6b", || qwen3(QWEN3_0_6B, TensorType::Q8_0)),
    ("qwen3-1.7b", || qwen3(QWEN3_1_7B, TensorType::Q8_0)),
    ("qwen3-4b", || qwen3(QWEN3_4B, TensorType::Q8_0)),
    ("qwen3-30b-a3b", || qwen3_30b_a3b(TensorType::Q4_K)),
    ("mixtral-8x7b", || mixtral(TensorType::Q4_K)),
    ("olmoe-1b-7b", || olmoe(TensorType::Q8_0)),
    ("command-r", command_r),
    ("deepseek-v2-lite", || deepseek_v2_lite(TensorType::Q4_0, true)),
    ("deepseek-v2-lite-full-heads", || deepseek_v2_lite(TensorType::Q4_0, false)),
    ("deepseek-v3", deepseek_v3),
    ("gemma-2-9b", || gemma("gemma2", GEMMA_2_9B)),
    ("gemma-3-270m", || gemma("gemma3", GEMMA_3_270M)),
    ("gemma-3-4b", || gemma("gemma3", GEMMA_3_4B)),
    ("gemma-4-12b", gemma_4_12b),
    ("gpt-oss-20b", || gpt_oss(24, 32)),
    ("gpt-oss-120b", || gpt_oss(36, 128)),
    ("mamba-2.8b", mamba_2_8b),
    ("falcon-h1-1.5b", falcon_h1_1_5b),
    ("granite-4-h-tiny", granite_4_h_tiny),
    ("granite-4-h-small", granite_4_h_small),
    ("jamba-v0.1", jamba_v0_1),
    ("qwen3.6-27b", qwen3_6_27b),
    ("qwen3.6-35b-a3b", qwen3_6_35b_a3b),
    ("qwen3-next-80b", qwen3_next_80b),
    ("qwen2.5-7b", qwen2_5_7b),
    ("phi-4-mini", phi_4_mini),
    ("glm-4-9b", glm_4_9b),
    ("glm-4.5-air", glm_4_5_air),
    ("mamba2-2.7b", mamba2_2_7b),
    ("nemotron-h-8b", nemotron_h_8b),
    ("lfm2-1.2b", lfm2_1_2b),
    ("command-r7b", command_r7b),
    ("llama-4-scout", llama_4_scout),
    ("olmo-3-7b", olmo_3_7b),
    ("exaone-4-32b", exaone_4_32b),
    ("granite-3-8b", granite_3_8b),
];
