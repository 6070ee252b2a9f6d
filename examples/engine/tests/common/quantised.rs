//! Tiny models whose matrices are GGUF blocks: random ones, of the size that such weights have.

use memtier::f16;
use memtier_engine::ModelFile;
use memtier_model::{
    TensorType,
    write::{GgufWriter, TinyModel},
};

use super::{Temporary, tiny_file};

struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }
}

/// Bytes of a block, its elements, and where it has f16 that make its weights of the size `size`.
fn block(tensor_type: TensorType, size: f32) -> (usize, usize, Vec<(usize, f32)>) {
    match tensor_type {
        TensorType::Q4_0 => (18, 32, vec![(0, size / 4.6)]),
        TensorType::Q4_1 => (20, 32, vec![(0, size / 4.6), (2, -7.5 * size / 4.6)]),
        TensorType::Q5_0 => (22, 32, vec![(0, size / 9.2)]),
        TensorType::Q5_1 => (24, 32, vec![(0, size / 9.2), (2, -15.5 * size / 9.2)]),
        TensorType::Q8_0 => (34, 32, vec![(0, size / 74.0)]),
        TensorType::Q4_K => (144, 256, vec![(0, size / 255.0), (2, 7.5 * size / 255.0)]),
        TensorType::Q6_K => (210, 256, vec![(208, size / 1370.0)]),
        other => panic!("{other:?} is not written here"),
    }
}

/// The model with its matrices as blocks of the types that `of` names them; one without keeps its f32.
pub fn quantised(name: &str, model: TinyModel, of: impl Fn(&str) -> Option<TensorType>) -> Temporary {
    let seed = model.seed;
    let plain = tiny_file(&format!("{name}-plain"), model);
    let file = ModelFile::open(plain.path()).unwrap();
    let mut random = Random(seed);
    let mut to = GgufWriter::new();
    for (key, value) in file.gguf().metadata().iter() {
        to.value(key, value);
    }
    for tensor in file.gguf().tensors() {
        let dims = tensor.shape.dims();
        let bytes = file.tensor(&tensor.name).unwrap().1;
        let Some(tensor_type) = of(&tensor.name).filter(|_| dims.len() > 1) else {
            to.tensor(&tensor.name, dims, tensor.tensor_type, bytes.to_vec()).unwrap();
            continue;
        };
        let (block_bytes, elements, scales) = block(tensor_type, (dims[0] as f32).sqrt().recip());
        let count = dims.iter().product::<u64>() as usize / elements;
        let mut data = Vec::with_capacity(count * block_bytes);
        for _ in 0..count {
            let first = data.len();
            data.extend((0..block_bytes).map(|_| random.byte()));
            for (at, scale) in &scales {
                data[first + at..first + at + 2].copy_from_slice(&f16::from_f32(*scale).to_le_bytes());
            }
        }
        to.tensor(&tensor.name, dims, tensor_type, data).unwrap();
    }
    Temporary::new(&format!("{name}.gguf"), &to.to_bytes())
}

/// A Llama whose matrices have few bits: of one kind, of several in one launch, and one without tiles beside two with them.
pub fn few_bits(test: &str) -> (&'static str, Temporary) {
    let model =
        TinyModel { hidden: 256, head_dim: 64, feed_forward: 256, context: 512, layers: 3, ..TinyModel::llama(33) };
    let of = |name: &str| {
        let (layer, tensor) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).unwrap_or(("", name));
        Some(match (layer, tensor.trim_end_matches(".weight")) {
            ("0", "attn_v") => TensorType::Q6_K,
            ("0", "ffn_down") => TensorType::Q8_0,
            ("0", "attn_output") => TensorType::Q5_0,
            ("0", _) => TensorType::Q4_K,
            ("1", "attn_q" | "ffn_gate") => TensorType::Q5_1,
            ("1", _) => TensorType::Q4_0,
            ("2", _) => TensorType::Q4_1,
            _ => TensorType::Q8_0,
        })
    };
    ("llama-few-bits", quantised(&format!("{test}-few-bits"), model, of))
}
