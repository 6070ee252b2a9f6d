//! `olmo2` and OLMo 3, which converts to it: the latter states a window, for three layers of four.

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
