//! The buffers of a transformer: what the engine annotates, and what memtier prices, carves and owns.

use std::str::FromStr;

use engine_kernels::{Format, packed_bytes};
use memtier::{Bytes, Packed, PackedFormat, tier};
#[cfg(feature = "cuda")]
use memtier_cuda::kernels::Tiling;

/// How a weight matrix is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeightFormat {
    /// In its GGUF format, packed into groups of sixteen rows for the CPU kernels.
    Packed(Format),
    /// As bf16, row by row, for the CUDA kernels: converted when it is uploaded.
    Bf16,
    /// In about as many bits as in the file, in tiles for the CUDA kernels.
    #[cfg(feature = "cuda")]
    Tiled(Tiling),
}

/// How a GPU keeps weight matrices; the CPU keeps them as they are in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GpuWeights {
    /// In about the file's bits, in tiles, where there are tiles of that format (`Q4_0`, `Q4_1`, `Q4_K`, `Q5_0`, `Q6_K`, `Q8_0`); bf16 elsewhere.
    /// Values of 4 bits take 5 with their scales, of 6 bits 7; scales of `Q4_K` and `Q6_K` are rounded to f16.
    #[default]
    File,
    /// All of them as bf16.
    Bf16,
}

impl FromStr for GpuWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(GpuWeights::File),
            "bf16" => Ok(GpuWeights::Bf16),
            _ => Err(format!("`{text}` is no way to keep weights: write file or bf16")),
        }
    }
}

impl WeightFormat {
    /// Whether the CPU kernels multiply it with inputs that are not quantised.
    pub fn is_float(self) -> bool {
        match self {
            WeightFormat::Packed(format) => format.is_float(),
            WeightFormat::Bf16 => true,
            #[cfg(feature = "cuda")]
            WeightFormat::Tiled(_) => true,
        }
    }
}

impl PackedFormat for WeightFormat {
    fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
        let [rows, columns] = *shape else { return None };
        match self {
            WeightFormat::Packed(format) => packed_bytes(*format, rows, columns).map(Bytes::new),
            WeightFormat::Bf16 => (rows as u64).checked_mul(columns as u64)?.checked_mul(2).map(Bytes::new),
            #[cfg(feature = "cuda")]
            WeightFormat::Tiled(tiling) => tiling.bytes(shape),
        }
    }
}

/// The sizes of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerDims {
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Query heads times their dimension.
    pub q_rows: usize,
    /// Key/value heads times their dimension.
    pub kv_rows: usize,
    /// Elements between the feed-forward projections.
    pub ffn: usize,
    /// Elements of a head, for the norms of queries and keys; 1 where the model has none.
    pub qk_norm: usize,
    /// Elements of the norms after attention and feed-forward; 1 where the model has none.
    pub post_norm: usize,
    /// Formats of q, k, v, output, gate, up, down.
    pub formats: [WeightFormat; 7],
}

/// The sizes of a model's weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightDims {
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Tokens.
    pub vocab: usize,
    /// Format of the embedding.
    pub embed: WeightFormat,
    /// Format of the output head; `None` when it is the embedding.
    pub head: Option<WeightFormat>,
    /// Each layer's.
    pub layers: Vec<LayerDims>,
    /// The rotary embeddings, where any has factors that are read from memory; none otherwise.
    pub ropes: Vec<RopeDims>,
    /// Whether embedding, last norm and head are among them; without, each is one row that nobody reads.
    pub ends: bool,
}

/// The size of a rotary embedding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RopeDims {
    /// Its factors, one for each pair of elements; 1 where it has none.
    pub pairs: usize,
}

impl WeightDims {
    /// The same model in bf16.
    #[must_use]
    pub fn in_bf16(mut self) -> Self {
        self.embed = WeightFormat::Bf16;
        self.head = self.head.map(|_| WeightFormat::Bf16);
        self.layers.iter_mut().for_each(|layer| layer.formats = [WeightFormat::Bf16; 7]);
        self
    }

    fn layer(&self, index: usize) -> LayerDims {
        self.layers[index]
    }

    fn layer_count(&self) -> usize {
        self.layers.len()
    }

    fn rope(&self, index: usize) -> RopeDims {
        self.ropes[index]
    }

    fn rope_count(&self) -> usize {
        self.ropes.len()
    }

    fn embed_rows(&self) -> usize {
        if self.ends { self.vocab } else { 1 }
    }

    /// Rows of a head of its own; 1 where the head is the embedding.
    fn head_rows(&self) -> usize {
        self.head.filter(|_| self.ends).map_or(1, |_| self.vocab)
    }

    fn head_format(&self) -> WeightFormat {
        self.head.unwrap_or(WeightFormat::Packed(Format::F32))
    }
}

/// One layer.
#[tier(ModelResident, dims = LayerDims)]
pub struct LayerWeights {
    /// Norm before attention.
    #[shape(hidden)]
    pub attn_norm: f32,
    /// Query projection.
    #[shape(q_rows, hidden)]
    #[format(formats[0])]
    pub q: Packed<WeightFormat>,
    /// Key projection.
    #[shape(kv_rows, hidden)]
    #[format(formats[1])]
    pub k: Packed<WeightFormat>,
    /// Value projection.
    #[shape(kv_rows, hidden)]
    #[format(formats[2])]
    pub v: Packed<WeightFormat>,
    /// Norm of each query head (Gemma 3).
    #[shape(qk_norm)]
    pub q_norm: f32,
    /// Norm of each key head (Gemma 3).
    #[shape(qk_norm)]
    pub k_norm: f32,
    /// Output projection of attention.
    #[shape(hidden, q_rows)]
    #[format(formats[3])]
    pub o: Packed<WeightFormat>,
    /// Norm after attention, before the residual (Gemma 3).
    #[shape(post_norm)]
    pub post_attn_norm: f32,
    /// Norm before the feed-forward part.
    #[shape(hidden)]
    pub ffn_norm: f32,
    /// Gate projection.
    #[shape(ffn, hidden)]
    #[format(formats[4])]
    pub gate: Packed<WeightFormat>,
    /// Up projection.
    #[shape(ffn, hidden)]
    #[format(formats[5])]
    pub up: Packed<WeightFormat>,
    /// Down projection.
    #[shape(hidden, ffn)]
    #[format(formats[6])]
    pub down: Packed<WeightFormat>,
    /// Norm after the feed-forward part, before the residual (Gemma 3).
    #[shape(post_norm)]
    pub post_ffn_norm: f32,
}

/// One rotary embedding.
#[tier(ModelResident, dims = RopeDims)]
pub struct RopeWeights {
    /// Divisors of its frequencies (Llama 3.1 and later).
    #[shape(pairs)]
    pub factors: f32,
}

/// All weights of a model.
#[tier(ModelResident, dims = WeightDims)]
pub struct Weights {
    /// Embedding, and output head where the two are tied (one row on a device that has some of the layers).
    #[shape(embed_rows(), hidden)]
    #[format(embed)]
    pub embed: Packed<WeightFormat>,
    /// Output head of its own (one row where it is the embedding).
    #[shape(head_rows(), hidden)]
    #[format(head_format())]
    pub head: Packed<WeightFormat>,
    /// Norm before the head.
    #[shape(hidden)]
    pub norm: f32,
    /// The layers.
    #[dims(layer(index))]
    pub layers: [LayerWeights; layer_count()],
    /// The rotary embeddings, where any has factors that are read from memory.
    #[dims(rope(index))]
    pub ropes: [RopeWeights; rope_count()],
}

/// The sizes of the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkDims {
    /// Tokens of one forward pass, over all sequences.
    pub tokens: usize,
    /// Sequences.
    pub rows: usize,
    /// Tokens that want logits: one of each sequence, and its drafts.
    pub picks: usize,
    /// Bytes that a vendor's library works in; 0 without one.
    pub library: usize,
}

/// What every step reads: written before the launches, at addresses that never change.
#[tier(EnginePersistent, dims = WorkDims)]
pub struct Workspace {
    /// The tokens of this pass.
    #[shape(tokens)]
    pub tokens: u32,
    /// The sequence (page table row) of each token.
    #[shape(tokens)]
    pub rows: u32,
    /// The position of each token in its sequence.
    #[shape(tokens)]
    pub positions: u32,
    /// Tokens of each sequence, those of this pass included.
    #[shape(rows)]
    pub lengths: u32,
    /// The first token of each sequence that is in its ring of unrounded ones, where there are rings.
    #[shape(rows)]
    pub starts: u32,
    /// Which tokens of this pass want logits.
    #[shape(picks)]
    pub picks: u32,
    /// How each sequence is sampled: temperature, top-p. Written when a sequence with another one comes into its row.
    #[shape(rows, 2)]
    pub sampling: f32,
    /// The same: top-k, and the seed in two halves, the low one first.
    #[shape(rows, 3)]
    pub seeds: u32,
    /// The sampled tokens.
    #[shape(picks)]
    pub sampled: u32,
    /// What a vendor's library for products of prompts works in.
    #[when(library > 0)]
    #[shape(library, align = 256)]
    pub library: u8,
}
