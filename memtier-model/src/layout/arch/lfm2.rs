//! `lfm2`: short convolutions, which keep a few inputs and no other state, and attention where there are key-value heads.

use super::common::{Common, window};
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;
use crate::layout::{LayerMemory, LayerState};

pub(super) fn lfm2(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let kept = facts.size("shortconv.l_cache")? - 1;
    let state = LayerState { conv: kept * common.hidden, state: 0, channels: 3 * common.hidden, inner: common.hidden };
    let window = window(facts)?;
    let layer = |layer| match common.kv_heads[layer] {
        0 => common.recurring(layer, state),
        _ => {
            let attending = common.attending(layer);
            LayerMemory {
                cache: attending.cache.map(|cache| crate::layout::LayerCache { window, ..cache }),
                ..attending
            }
        }
    };
    Ok((0..common.blocks).map(layer).collect())
}
