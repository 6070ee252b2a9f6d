//! `nemotron_h`: a layer is one thing only. With key-value heads it attends, with a feed-forward size it is a
//! feed-forward, with neither it recurs.

use super::common::{Common, mamba_state};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

pub(super) fn nemotron_h(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let state = mamba_state(facts)?;
    let layer = |layer| match (common.kv_heads[layer], common.feed_forward[layer]) {
        (0, 0) => common.recurring(layer, state),
        (0, feed_forward) => LayerMemory { feed_forward, ..LayerMemory::default() },
        _ => common.attending(layer),
    };
    Ok((0..common.blocks).map(layer).collect())
}
