//! A whole model through the declarations.
use memtier::*;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum W {
    F16,
    Q8,
}
impl PackedFormat for W {
    fn bytes(&self, shape: &[usize]) -> Option<Bytes> {
        let n = shape.iter().product::<usize>() as u64;
        Some(Bytes::new(match self {
            W::F16 => n * 2,
            W::Q8 => n / 32 * 34,
        }))
    }
}

#[derive(Clone, Copy)]
pub struct LayerDims {
    pub hidden: usize,
    pub format: W,
}

#[derive(Clone, Copy)]
pub struct Dims {
    pub hidden: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub layers: usize,
    pub max_batch: usize,
    pub vocab: usize,
    pub vision: bool,
}
impl Dims {
    fn layer(&self, index: usize) -> LayerDims {
        LayerDims { hidden: self.hidden, format: if index % 2 == 0 { W::F16 } else { W::Q8 } }
    }
}

#[tier(ModelResident, dims = LayerDims)]
pub struct LayerWeights {
    #[shape(hidden, hidden)]
    pub query: f32,
    #[shape(hidden, 4 * hidden, format = format)]
    pub up: Packed<W>,
}
#[tier(ModelResident, dims = Dims)]
pub struct Tower {
    #[shape(hidden)]
    pub patch: f32,
}

#[tier(ModelResident, dims = Dims)]
pub struct LlamaWeights {
    #[shape(vocab, hidden)]
    pub embed: f32,
    #[dims(layer(0))]
    pub norm: LayerWeights,
    #[dims(layer(index))]
    pub layers: [LayerWeights; layers],
    #[when(vision)]
    pub tower: Tower,
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
    let dims = Dims { hidden: 64, heads: 2, head_dim: 4, layers: 3, max_batch: 2, vocab: 16, vision: true };
    println!("{:?}", LlamaWeights::price(&dims));
    println!("{:#?}", LlamaWeights::fields(&dims));
}
