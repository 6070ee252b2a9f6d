//! `jamba` and `granitehybrid`: a layer attends when it has key-value heads, and recurs when it has none.

use super::common::{Common, mamba_state};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

pub(super) fn by_heads(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let state = mamba_state(facts)?;
    let layer = |layer| match common.kv_heads[layer] {
        0 => common.recurring(layer, state),
        _ => common.attending(layer),
    };
    Ok((0..common.blocks).map(layer).collect())
}
