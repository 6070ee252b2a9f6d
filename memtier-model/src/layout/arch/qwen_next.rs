//! Qwen3-Next, 3.5 and 3.6: three gated delta nets to one layer that attends. Drafts attend.

use super::common::{Common, mamba_state};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

/// Every fourth layer attends where the file does not say otherwise.
const INTERVAL: u64 = 4;

pub(super) fn hybrid(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let state = mamba_state(facts)?;
    let recurrent: Vec<bool> = match facts.per_layer("attention.recurrent_layers", 0)? {
        Some(flags) => flags.into_iter().map(|flag| flag != 0).collect(),
        None => {
            let mut recurrent = common.every(facts.number("full_attention_interval")?.unwrap_or(INTERVAL));
            recurrent[common.blocks - common.drafts..].fill(false);
            recurrent
        }
    };
    let layer = |(layer, recurs)| if recurs { common.recurring(layer, state) } else { common.attending(layer) };
    Ok(recurrent.into_iter().enumerate().map(layer).collect())
}
