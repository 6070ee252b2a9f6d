//! The weights of a model, dequantised.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use memtier_model::{Gguf, ModelDescription};

use super::Activations;
use super::dequant::dequantise;
use super::ops::Matrix;

pub struct Weights {
    pub embedding: Matrix,
    pub output_norm: Vec<f32>,
    /// `None` when the embedding is the output projection.
    pub output: Option<Matrix>,
    pub layers: Vec<LayerWeights>,
}

pub struct LayerWeights {
    pub attn_norm: Vec<f32>,
    pub attn_q: Matrix,
    pub attn_k: Matrix,
    pub attn_v: Matrix,
    pub attn_output: Matrix,
    pub attn_q_bias: Option<Vec<f32>>,
    pub attn_k_bias: Option<Vec<f32>>,
    pub attn_v_bias: Option<Vec<f32>>,
    pub attn_output_bias: Option<Vec<f32>>,
    pub attn_q_norm: Option<Vec<f32>>,
    pub attn_k_norm: Option<Vec<f32>>,
    pub post_attention_norm: Option<Vec<f32>>,
    pub ffn_norm: Vec<f32>,
    pub ffn_gate: Matrix,
    pub ffn_up: Matrix,
    pub ffn_down: Matrix,
    pub post_ffw_norm: Option<Vec<f32>>,
    /// What the rotary frequencies are divided by; the model's, not the layer's.
    pub rope_factors: Option<Vec<f32>>,
}

impl Weights {
    pub fn read(model: &Gguf<'_>, description: &ModelDescription, activations: Activations) -> Weights {
        let read = |name: &str| read(model, name, activations);
        let optional = |name: &str| read(name).map(|matrix| matrix.data);
        let matrix = |name: &str| read(name).unwrap_or_else(|| panic!("{name} was checked to be there"));
        let layer = |index: u32| {
            let name = |tensor: &str| format!("blk.{index}.{tensor}");
            let optional = |tensor: &str| optional(&name(tensor));
            let matrix = |tensor: &str| matrix(&name(tensor));
            LayerWeights {
                attn_norm: matrix("attn_norm.weight").data,
                attn_q: matrix("attn_q.weight"),
                attn_k: matrix("attn_k.weight"),
                attn_v: matrix("attn_v.weight"),
                attn_output: matrix("attn_output.weight"),
                attn_q_bias: optional("attn_q.bias"),
                attn_k_bias: optional("attn_k.bias"),
                attn_v_bias: optional("attn_v.bias"),
                attn_output_bias: optional("attn_output.bias"),
                attn_q_norm: optional("attn_q_norm.weight"),
                attn_k_norm: optional("attn_k_norm.weight"),
                post_attention_norm: optional("post_attention_norm.weight"),
                ffn_norm: matrix("ffn_norm.weight").data,
                ffn_gate: matrix("ffn_gate.weight"),
                ffn_up: matrix("ffn_up.weight"),
                ffn_down: matrix("ffn_down.weight"),
                post_ffw_norm: optional("post_ffw_norm.weight"),
                rope_factors: read("rope_freqs.weight").map(|matrix| matrix.data),
            }
        };
        Weights {
            embedding: matrix("token_embd.weight"),
            output_norm: matrix("output_norm.weight").data,
            output: (!description.tied_embeddings).then(|| matrix("output.weight")),
            layers: (0..description.layers.len() as u32).map(layer).collect(),
        }
    }
}

/// Reads one tensor of a model that was opened by path.
fn read(model: &Gguf<'_>, name: &str, activations: Activations) -> Option<Matrix> {
    let tensor = model.tensor(name)?;
    let mut file = File::open(&model.paths()[tensor.part]).expect("the file was opened before");
    file.seek(SeekFrom::Start(tensor.offset)).expect("the offset is within the file");
    let mut bytes = vec![0; tensor.byte_len as usize];
    file.read_exact(&mut bytes).expect("the tensor is within the file");
    let rounding = (activations == Activations::Rounded).then_some(tensor.tensor_type);
    Some(Matrix { columns: tensor.shape.row() as usize, data: dequantise(tensor.tensor_type, &bytes), rounding })
}
