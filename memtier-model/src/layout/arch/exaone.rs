//! `exaone4`: three layers with a window to one without, in the model of 64 layers; the small one has no windows.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: u64 = 4;
const LAYERS_OF_32B: usize = 64;
const WINDOW: u64 = 4096;

pub(super) fn exaone4(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    if common.blocks - common.drafts != LAYERS_OF_32B {
        return Ok(common.all_attending());
    }
    Ok(common.with_windows(window(facts)?.unwrap_or(WINDOW), &common.pattern(facts, PERIOD)?))
}
