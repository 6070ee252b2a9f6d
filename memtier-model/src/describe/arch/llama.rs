//! `llama`: Llama 1 to 3, and the many models converted as if they were one.

use super::need_transformer;
use crate::describe::error::DescribeError;
use crate::describe::hparams::Hparams;
use crate::describe::layer::*;
use crate::describe::requirements::Requirements;
use crate::describe::{Architecture, ModelDescription};
use crate::gguf::Gguf;

pub(super) fn describe(model: &Gguf<'_>) -> Result<ModelDescription, DescribeError> {
    let hparams = Hparams::new(Architecture::Llama, model);
    // Mixtral's files say `llama` too.
    if hparams.optional::<u32>("expert_count")?.unwrap_or(0) > 0 {
        return Err(hparams.unsupported("a mixture of experts", "expert_count"));
    }
    let layers = hparams.layers()?;
    let hidden_size = hparams.size("embedding_length")?;
    let heads = hparams.heads(layers)?;
    let feed_forward = hparams.feed_forward(layers)?;
    let (key_dim, value_dim) = hparams.head_dims(hidden_size, &heads)?;
    let freq_factors = model.tensor("rope_freqs.weight").is_some();
    let rope = Rope {
        dims: hparams.rope_dims(key_dim)?,
        base: hparams.optional_positive("rope.freq_base")?.unwrap_or(10_000.0),
        layout: RopeLayout::Interleaved,
        scaling: hparams.rope_scaling()?,
        freq_factors,
    };
    let layer = |(index, ((heads, kv_heads), size)): (u32, ((u32, u32), u32))| {
        let has = |tensor: &str| model.tensor(&format!("blk.{index}.{tensor}")).is_some();
        Layer {
            index,
            kind: LayerKind::Attention(Attention {
                heads,
                kv_heads,
                key_dim,
                value_dim,
                span: AttentionSpan::Full,
                rope,
                scale: (key_dim as f32).sqrt().recip(),
                qk_norm: false,
                qkv_bias: has("attn_q.bias"),
                output_bias: has("attn_output.bias"),
                softcap: None,
            }),
            feed_forward: FeedForward::Gated { size, activation: Activation::Silu },
        }
    };
    let description = ModelDescription {
        architecture: Architecture::Llama,
        name: hparams.name(),
        vocab_size: hparams.vocab_size()?,
        hidden_size,
        context_length: hparams.size("context_length")?,
        norm_eps: hparams.positive("attention.layer_norm_rms_epsilon")?,
        norm_placement: NormPlacement::Pre,
        embedding_scale: 1.0,
        tied_embeddings: model.tensor("output.weight").is_none(),
        logit_softcap: None,
        layers: (0..layers).zip(heads.into_iter().zip(feed_forward)).map(layer).collect(),
    };

    let mut need = Requirements::new(model, description.architecture.name());
    need_transformer(&mut need, &description);
    need.allow("rope_freqs.weight", &[u64::from(rope.dims / 2)]);
    need.finish()?;
    Ok(description)
}
