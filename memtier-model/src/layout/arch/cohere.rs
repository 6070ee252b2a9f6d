//! `cohere2` (Command R7B, Command A): three layers with a window to one without. Command-R before it has none.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: u64 = 4;

pub(super) fn cohere2(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    Ok(match window(facts)? {
        Some(window) => common.with_windows(window, &common.pattern(facts, PERIOD)?),
        None => common.all_attending(),
    })
}
