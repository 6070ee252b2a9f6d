//! A whole model through the declarations.
use memtier::*;

#[derive(Clone, Copy)]
pub struct Dims {
    pub hidden: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub layers: usize,
    pub max_batch: usize,
    pub vocab: usize,
}

#[tier(ModelResident, dims = Dims)]
pub struct LayerWeights {
    #[shape(hidden, hidden)]
    pub query: f32,
    #[shape(hidden, heads * head_dim, align = 512)]
    pub up: f32,
}

#[tier(ModelResident, dims = Dims)]
pub struct LlamaWeights {
    #[shape(vocab, hidden)]
    pub embed: f32,
    pub norm: LayerWeights,
    pub layers: [LayerWeights; layers],
}
#[tier(EnginePersistent, dims = Dims)]
pub struct DecodeWorkspace {
    #[shape(max_batch, hidden)]
    pub hidden: bf16,
    #[shape(max_batch, heads * head_dim)]
    pub attn: bf16,
    #[shape(max_batch, vocab, align = 256)]
    pub logits: f32,
}
#[graph_captured]
pub struct Llama {
    pub weights: LlamaWeights,
    pub work: DecodeWorkspace,
    pub kv: BlockPool<GlobalKv<f16>>,
    pub window: Option<BlockPool<SwaKv<f16>>>,
    pub table: PageTable<GlobalKv<f16>>,
}

#[test]
fn smoke() {
    let dims = Dims { hidden: 8, heads: 2, head_dim: 4, layers: 3, max_batch: 2, vocab: 16 };
    println!("{:?}", LlamaWeights::price(&dims));
    println!("{:#?}", LlamaWeights::fields(&dims));
}
