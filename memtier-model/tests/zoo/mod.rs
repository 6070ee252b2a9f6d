//! Headers of real models, by their shapes: every key that decides memory and every tensor, without data.
//!
//! The shapes are those of the published models; the files are made here and never had weights.

#![allow(dead_code, unreachable_pub, reason = "each test takes the models it needs")]

mod blocks;
mod models;

use memtier_model::gguf::Limits;
use memtier_model::write::GgufWriter;
use memtier_model::{Gguf, Header, ModelLayout, TensorType};

pub use models::*;

/// A model under construction.
pub struct Model {
    pub file: GgufWriter,
    pub arch: &'static str,
    pub layers: u64,
    pub hidden: u64,
    pub vocab: u64,
    /// The type of matrices; norms and other vectors are 32-bit floats.
    pub quant: TensorType,
}

impl Model {
    pub fn new(arch: &'static str, layers: u64, hidden: u64, vocab: u64, context: u32) -> Model {
        let mut model = Model { file: GgufWriter::new(), arch, layers, hidden, vocab, quant: TensorType::F16 };
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
        self.file.hole(name, &[row, rows], self.quant).expect("whole blocks");
        self
    }

    pub fn cube(&mut self, name: &str, dims: [u64; 3]) -> &mut Model {
        self.file.hole(name, &dims, self.quant).expect("whole blocks");
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
