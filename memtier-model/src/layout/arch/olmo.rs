//! `olmo2` and OLMo 3, which converts to it, and `afmoe`: where they state a window it is on three layers of four.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: u64 = 4;

pub(super) fn olmo2(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    Ok(match window(facts)? {
        Some(window) => common.with_windows(window, &common.pattern(facts, PERIOD)?),
        None => common.all_attending(),
    })
}
