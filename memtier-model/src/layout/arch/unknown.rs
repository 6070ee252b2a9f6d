//! Architectures nobody has described here. Keys that mean the same everywhere, and the tensors, say how most of them
//! attend; where they do not, the model is refused rather than guessed at.

use super::common::{Common, mamba_state, window};
use crate::layout::LayerMemory;
use crate::layout::error::{LayoutError, LayoutWarning};
use crate::layout::facts::Facts;

pub(super) fn unknown(
    facts: &Facts<'_>,
    common: &Common,
    warnings: &mut Vec<LayoutWarning>,
) -> Result<Vec<LayerMemory>, LayoutError> {
    let refuse = |reason: &str| LayoutError::UnknownArchitecture {
        name: facts.architecture.to_owned(),
        reason: reason.to_owned(),
    };
    if common.heads.iter().all(|&heads| heads == 0) {
        return Err(refuse("it states no attention heads"));
    }
    if facts.number("attention.kv_lora_rank")?.is_some() {
        return Err(refuse("it has latent attention, whose cache its keys do not fix"));
    }
    let recurs = facts.number("ssm.state_size")?.is_some();
    if facts.number("wkv.head_size")?.is_some() || facts.number("kda.head_dim")?.is_some() {
        return Err(refuse("it keeps a recurrent state of a kind its keys do not fix"));
    }
    warnings.push(LayoutWarning::UnknownArchitecture { name: facts.architecture.to_owned() });

    let mut layers = match window(facts)? {
        None => common.all_attending(),
        Some(window) if facts.is_list("attention.sliding_window_pattern") => {
            common.with_windows(window, &common.pattern(facts, 0)?)
        }
        Some(window) => {
            warnings.push(LayoutWarning::WindowIgnored { window });
            common.all_attending()
        }
    };
    if recurs {
        let state = mamba_state(facts)?;
        let recurrent = recurrent_layers(facts, common)?
            .ok_or_else(|| refuse("it has a recurrent state and does not say in which layers"))?;
        for (layer, _) in recurrent.into_iter().enumerate().filter(|(_, recurs)| *recurs) {
            layers[layer] = common.recurring(layer, state);
        }
    }
    Ok(layers)
}

/// By a list, by tensors, or by key-value heads of zero.
fn recurrent_layers(facts: &Facts<'_>, common: &Common) -> Result<Option<Vec<bool>>, LayoutError> {
    if let Some(flags) = facts.per_layer("attention.recurrent_layers", 0)? {
        return Ok(Some(flags.into_iter().map(|flag| flag != 0).collect()));
    }
    let blocks = 0..common.blocks as u64;
    if facts.is_gguf() {
        let has: Vec<bool> = blocks.map(|layer| facts.has_tensor(layer, "ssm_")).collect();
        let both = (0..common.blocks).any(|layer| has[layer] && facts.has_tensor(layer as u64, "attn_k."));
        if has.contains(&true) && !both {
            return Ok(Some(has));
        }
    }
    let zeros = common.kv_heads.iter().map(|&heads| heads == 0).collect::<Vec<_>>();
    Ok(zeros.contains(&true).then_some(zeros))
}
