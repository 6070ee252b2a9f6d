//! One file per architecture, and the table that finds it.

mod gemma3;
mod llama;

use super::error::DescribeError;
use super::requirements::Requirements;
use super::{Layer, ModelDescription};
use crate::gguf::Gguf;

/// Describes a model of one architecture.
pub(crate) type Describe = fn(&Gguf<'_>) -> Result<ModelDescription, DescribeError>;

/// `general.architecture` and who describes it, by name.
const TABLE: [(&str, Describe); 2] = [("gemma3", gemma3::describe), ("llama", llama::describe)];

pub(crate) fn find(name: &str) -> Result<Describe, DescribeError> {
    TABLE.iter().find(|entry| entry.0 == name).map(|entry| entry.1).ok_or_else(|| DescribeError::UnknownArchitecture {
        name: name.to_owned(),
        supported: TABLE.map(|entry| entry.0).to_vec(),
    })
}

/// The tensors that all gated, dense transformers have: embedding, output, and of each layer the projections and the
/// norms before attention and feed-forward.
fn need_transformer(need: &mut Requirements<'_>, model: &ModelDescription) {
    let (hidden, vocab) = (u64::from(model.hidden_size), u64::from(model.vocab_size));
    need.need("token_embd.weight", &[hidden, vocab]);
    need.need("output_norm.weight", &[hidden]);
    if !model.tied_embeddings {
        need.need("output.weight", &[hidden, vocab]);
    }
    for layer in &model.layers {
        need_attention(need, layer, hidden);
        let super::FeedForward::Gated { size, .. } = layer.feed_forward;
        let name = |tensor: &str| format!("blk.{}.{tensor}", layer.index);
        need.need(name("ffn_norm.weight"), &[hidden]);
        need.need(name("ffn_gate.weight"), &[hidden, size.into()]);
        need.need(name("ffn_up.weight"), &[hidden, size.into()]);
        need.need(name("ffn_down.weight"), &[size.into(), hidden]);
    }
}

fn need_attention(need: &mut Requirements<'_>, layer: &Layer, hidden: u64) {
    let Some(attention) = layer.attention() else { return };
    let name = |tensor: &str| format!("blk.{}.{tensor}", layer.index);
    let (heads, kv_heads) = (u64::from(attention.heads), u64::from(attention.kv_heads));
    let (key, value) = (u64::from(attention.key_dim), u64::from(attention.value_dim));
    need.need(name("attn_norm.weight"), &[hidden]);
    need.need(name("attn_q.weight"), &[hidden, heads * key]);
    need.need(name("attn_k.weight"), &[hidden, kv_heads * key]);
    need.need(name("attn_v.weight"), &[hidden, kv_heads * value]);
    need.need(name("attn_output.weight"), &[heads * value, hidden]);
    if attention.qk_norm {
        need.need(name("attn_q_norm.weight"), &[key]);
        need.need(name("attn_k_norm.weight"), &[key]);
    }
    if attention.qkv_bias {
        need.need(name("attn_q.bias"), &[heads * key]);
        need.need(name("attn_k.bias"), &[kv_heads * key]);
        need.need(name("attn_v.bias"), &[kv_heads * value]);
    }
    if attention.output_bias {
        need.need(name("attn_output.bias"), &[hidden]);
    }
}
