//! DeepSeek V2 and V3 and what converts to `deepseek2` (Kimi K2, GLM 4.7 Flash): multi-head latent attention.

use super::common::Common;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;
use crate::layout::{LayerCache, LayerMemory};

/// One latent a token and no values (576 elements in V2 and V3: rank 512 and 64 rotary) in files whose projections are
/// split for it; full heads in the files before.
pub(super) fn latent(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    Ok(match latent_of(facts, common)? {
        None => common.all_attending(),
        Some(key_dim) => {
            let cache = LayerCache { kv_heads: 1, key_dim, value_dim: 0, window: None, indexer: 0 };
            (0..common.blocks).map(|layer| LayerMemory { cache: Some(cache), ..common.attending(layer) }).collect()
        }
    })
}

/// DeepSeek V3.2: an index key beside the latent in every layer.
pub(super) fn sparse(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let mut layers = latent(facts, common)?;
    index(facts, &mut layers)?;
    Ok(layers)
}

/// Elements of the latent, when the file has tensors for it.
pub(super) fn latent_of(facts: &Facts<'_>, common: &Common) -> Result<Option<u64>, LayoutError> {
    let stated = facts.number("attention.key_length_mla")?.unwrap_or(0) > 0;
    let split = facts.has_tensor(0, "attn_k_b.");
    if !stated && !split {
        return Ok(None);
    }
    // The latent is what such files state as a key; its parts say the same where it is left out.
    let rank = facts.number("attention.kv_lora_rank")?;
    let rotary = facts.number("rope.dimension_count")?;
    let parts = rank.zip(rotary).map(|(rank, rotary)| rank + rotary);
    Ok(Some(facts.number("attention.key_length")?.or(parts).unwrap_or(common.key_dim)))
}

/// Adds the index key to the layers that choose tokens themselves. Where the file has no list, a layer with an index
/// of its own has a tensor for it, and a file without such tensors has one in every layer.
pub(super) fn index(facts: &Facts<'_>, layers: &mut [LayerMemory]) -> Result<(), LayoutError> {
    let size = facts.number("attention.indexer.key_length")?.unwrap_or(0);
    let own: Vec<bool> = match facts.per_layer("attention.indexer.types", 1)? {
        Some(types) => types.into_iter().map(|kind| kind != 0).collect(),
        None => {
            let own: Vec<bool> = (0..layers.len() as u64).map(|layer| facts.has_tensor(layer, "indexer.")).collect();
            if own.contains(&true) { own } else { vec![true; layers.len()] }
        }
    };
    for (cache, _) in layers.iter_mut().map(|layer| &mut layer.cache).zip(own).filter(|(_, own)| *own) {
        if let Some(cache) = cache {
            cache.indexer = size;
        }
    }
    Ok(())
}
