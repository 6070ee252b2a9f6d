//! `gemma3`: five layers with a sliding window to one without, norms before and after, scaled embeddings.

use super::need_transformer;
use crate::describe::error::DescribeError;
use crate::describe::hparams::Hparams;
use crate::describe::layer::*;
use crate::describe::requirements::Requirements;
use crate::describe::{Architecture, ModelDescription};
use crate::gguf::{Gguf, Value};

/// Every sixth layer attends over everything. Hardly any file says so.
const WINDOW_PERIOD: u32 = 6;
/// The rope base of layers with a window, which files leave out as well.
const LOCAL_ROPE_BASE: f32 = 10_000.0;
/// Layers of the 27B model, the only one whose attention scale does not come from its head size.
const LAYERS_OF_27B: u32 = 62;

pub(super) fn describe(model: &Gguf<'_>) -> Result<ModelDescription, DescribeError> {
    let hparams = Hparams::new(Architecture::Gemma3, model);
    let layers = hparams.layers()?;
    let hidden_size = hparams.size("embedding_length")?;
    let heads = hparams.heads(layers)?;
    let feed_forward = hparams.feed_forward(layers)?;
    let (key_dim, value_dim) = hparams.head_dims(hidden_size, &heads)?;
    let spans = spans(&hparams, model, layers)?;

    let global_rope = Rope {
        dims: hparams.rope_dims(key_dim)?,
        base: hparams.optional_positive("rope.freq_base")?.unwrap_or(10_000.0),
        layout: RopeLayout::Halves,
        scaling: hparams.rope_scaling()?,
        freq_factors: false,
    };
    let local_rope = Rope {
        base: hparams.optional_positive("rope.freq_base_swa")?.unwrap_or(LOCAL_ROPE_BASE),
        // Positions within a window are never beyond training.
        scaling: RopeScaling::None,
        ..global_rope
    };
    let softcap = hparams.optional_positive("attn_logit_softcapping")?;
    let scale_of = |heads: u32| match layers {
        LAYERS_OF_27B => (hidden_size as f32 / heads as f32).sqrt().recip(),
        _ => (key_dim as f32).sqrt().recip(),
    };
    let layer = |(index, ((heads, kv_heads), size)): (u32, ((u32, u32), u32))| {
        let span = spans[index as usize];
        Layer {
            index,
            kind: LayerKind::Attention(Attention {
                heads,
                kv_heads,
                key_dim,
                value_dim,
                span,
                rope: if span == AttentionSpan::Full { global_rope } else { local_rope },
                scale: scale_of(heads),
                qk_norm: true,
                qkv_bias: false,
                output_bias: false,
                softcap,
            }),
            feed_forward: FeedForward::Gated { size, activation: Activation::GeluTanh },
        }
    };
    let description = ModelDescription {
        architecture: Architecture::Gemma3,
        name: hparams.name(),
        vocab_size: hparams.vocab_size()?,
        hidden_size,
        context_length: hparams.size("context_length")?,
        norm_eps: hparams.positive("attention.layer_norm_rms_epsilon")?,
        norm_placement: NormPlacement::PreAndPost,
        embedding_scale: (hidden_size as f32).sqrt(),
        tied_embeddings: model.tensor("output.weight").is_none(),
        logit_softcap: hparams.optional_positive("final_logit_softcapping")?,
        layers: (0..layers).zip(heads.into_iter().zip(feed_forward)).map(layer).collect(),
    };

    let mut need = Requirements::new(model, description.architecture.name());
    need_transformer(&mut need, &description);
    for layer in 0..layers {
        need.need(format!("blk.{layer}.post_attention_norm.weight"), &[hidden_size.into()]);
        need.need(format!("blk.{layer}.post_ffw_norm.weight"), &[hidden_size.into()]);
    }
    need.finish()?;
    Ok(description)
}

/// How far each layer sees. The pattern is an array of booleans (true: window), a period, or not stated at all.
fn spans(hparams: &Hparams<'_>, model: &Gguf<'_>, layers: u32) -> Result<Vec<AttentionSpan>, DescribeError> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    // 0 is how a converter says that there is no window.
    let tokens = hparams.optional::<u32>("attention.sliding_window")?.unwrap_or(0);
    if tokens == 0 {
        return Ok(vec![AttentionSpan::Full; layers as usize]);
    }
    let key = hparams.key(PATTERN);
    let windowed: Vec<bool> = match model.metadata().get(&key) {
        Some(Value::Array(_)) => model.metadata().per_layer::<bool>(&key, layers)?.unwrap_or_default(),
        _ => {
            let period = hparams.optional_size(PATTERN)?.unwrap_or(WINDOW_PERIOD);
            (0..layers).map(|layer| layer % period < period - 1).collect()
        }
    };
    Ok(windowed.into_iter().map(|on| if on { AttentionSpan::Window { tokens } } else { AttentionSpan::Full }).collect())
}
