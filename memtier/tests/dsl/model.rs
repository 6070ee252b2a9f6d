//! A model with everything that declarations can say.

use memtier::{
    BlockPool, Blocks, Bytes, GlobalKv, Host, Limits, Packed, PackedFormat, PageTable, PoolSpec, Space, SwaKv,
    TableSpec, Tokens, bf16, f16, graph_captured, tier,
};

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WeightFormat {
    /// Two bytes an element.
    F16,
    /// 34 bytes for 32 elements.
    Q8,
}

impl PackedFormat for WeightFormat {
    fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
        let elements = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim as u64))?;
        let bytes = match self {
            WeightFormat::F16 => elements.checked_mul(2),
            WeightFormat::Q8 => (elements / 32).checked_mul(34).filter(|_| elements.is_multiple_of(32)),
        };
        bytes.map(Bytes::new)
    }
}

/// The numbers of one layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LayerDims {
    /// Elements of a row.
    pub hidden: usize,
    /// Elements of a row between the two matrices of the feed-forward.
    pub ffn: usize,
    /// How its matrices are stored.
    pub up_format: WeightFormat,
}

/// The numbers of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dims {
    /// Elements of a row.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Layers.
    pub layers: usize,
    /// Sequences.
    pub max_batch: usize,
    /// Tokens.
    pub vocab: usize,
    /// Whether there is a vision tower.
    pub vision: bool,
}

impl Dims {
    fn layer(&self, index: usize) -> LayerDims {
        let up_format = if index.is_multiple_of(2) { WeightFormat::F16 } else { WeightFormat::Q8 };
        LayerDims { hidden: self.hidden, ffn: 32 * (index + 1), up_format }
    }
}

/// One layer.
#[tier(ModelResident, dims = LayerDims)]
pub struct LayerWeights {
    /// Queries.
    #[shape(hidden, hidden)]
    pub query: f32,
    /// Up.
    #[shape(ffn, hidden)]
    #[format(up_format)]
    pub up: Packed<WeightFormat>,
    /// Down, with the format in the same attribute.
    #[shape(hidden, ffn, format = up_format, align = 512)]
    pub down: Packed<WeightFormat>,
}

/// The final norm.
#[tier(ModelResident, dims = Dims)]
pub struct NormWeights {
    /// One factor an element.
    #[shape(hidden)]
    pub scale: f32,
    /// Two quantised rows.
    #[shape(2, hidden.next_multiple_of(256))]
    pub quantised: memtier::Q4_K,
}

/// The vision tower.
#[tier(ModelResident, dims = Dims)]
pub struct VisionTower {
    /// Patches.
    #[shape(3 * 14 * 14, hidden)]
    pub patches: f16,
}

/// Weights.
#[tier(ModelResident, dims = Dims)]
pub struct LlamaWeights {
    /// Embedding.
    #[shape(vocab, hidden)]
    pub embed: f32,
    /// Norm, of the same dims.
    pub norm: NormWeights,
    /// One layer that stands alone.
    #[dims(layer(layers))]
    pub extra: LayerWeights,
    /// The layers, each with its own dims.
    #[dims(layer(index))]
    pub layers: [LayerWeights; layers],
    /// Two more norms.
    pub norms: [NormWeights; 2],
    /// The vision tower, where there is one.
    #[when(vision)]
    pub vision: VisionTower,
    /// What joins the two.
    #[shape(hidden, hidden)]
    #[when(vision && layers > 1)]
    pub projector: bf16,
}

/// Workspace.
#[tier(EnginePersistent, dims = Dims)]
pub struct DecodeWorkspace {
    /// Hidden state.
    #[shape(max_batch, hidden)]
    pub hidden: bf16,
    /// Attention output.
    #[shape(max_batch, heads * head_dim)]
    pub attn: bf16,
    /// Logits.
    #[shape(max_batch, vocab)]
    #[align(4096)]
    pub logits: f32,
    /// The same of the step before.
    #[shape(max_batch, vocab)]
    pub before: f32,
}

/// The model.
#[graph_captured]
pub struct Llama {
    /// Weights.
    pub weights: LlamaWeights,
    /// Workspace.
    pub work: DecodeWorkspace,
    /// Global KV.
    pub kv: BlockPool<GlobalKv<f16>>,
    /// Sliding-window KV.
    pub window: Option<BlockPool<SwaKv<f16>>>,
    /// A second workspace, which this configuration leaves out.
    pub draft: Option<DecodeWorkspace>,
    /// Page table.
    pub table: PageTable<GlobalKv<f16>>,
}

/// What the tests run with.
pub const DIMS: Dims = Dims { hidden: 64, heads: 4, head_dim: 16, layers: 3, max_batch: 2, vocab: 100, vision: true };

/// A pool of this many blocks.
pub fn pool(blocks: u64) -> PoolSpec {
    PoolSpec::fixed(Tokens::new(4), 4 * 2 * DIMS.hidden, Blocks::new(blocks))
}

/// The sizes of the parts.
pub fn spec(dims: Dims) -> LlamaSpec {
    LlamaSpec {
        weights: dims,
        work: dims,
        kv: pool(8),
        window: Some(pool(4)),
        draft: None,
        table: TableSpec { rows: dims.max_batch, columns: 4 },
    }
}

/// The machine.
pub fn limits() -> Limits {
    Limits { graphs: 2, graph_bytes: Bytes::kib(4), ..Limits::new(Host::NAME, Bytes::mib(64)) }
}
