//! `kimi-linear`: delta attention, whose state is a square a head, and latent attention where there are key-value heads.

use super::common::Common;
use super::deepseek;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;
use crate::layout::{LayerCache, LayerMemory, LayerState};

pub(super) fn kimi_linear(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let dim = facts.size("kda.head_dim")?;
    let taps = facts.size("ssm.conv_kernel")?;
    let heads = common.heads.iter().copied().max().unwrap_or(0);
    let inner = heads * dim;
    let too_large = || facts.inconsistent(format!("{heads} heads of {dim} elements are more than a state can hold"));
    // Queries, keys and values each pass a convolution of their own.
    let conv = inner.checked_mul(3 * (taps - 1)).ok_or_else(too_large)?;
    let state = LayerState { conv, state: inner.checked_mul(dim).ok_or_else(too_large)?, channels: 3 * inner, inner };
    let latent = deepseek::latent_of(facts, common)?;
    let layer = |layer| match (common.kv_heads[layer], latent) {
        (0, _) => common.recurring(layer, state),
        (_, None) => common.attending(layer),
        (_, Some(key_dim)) => LayerMemory {
            cache: Some(LayerCache { kv_heads: 1, key_dim, value_dim: 0, window: None, indexer: 0 }),
            ..common.attending(layer)
        },
    };
    Ok((0..common.blocks).map(layer).collect())
}
