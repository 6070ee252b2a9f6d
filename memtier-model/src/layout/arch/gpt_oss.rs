//! `gpt-oss`: layers with a window of 128 tokens and layers without take turns. Charging the context for both doubles
//! the cache.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: u64 = 2;

pub(super) fn gpt_oss(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let window = window(facts)?.ok_or_else(|| facts.missing("attention.sliding_window"))?;
    Ok(common.with_windows(window, &common.pattern(facts, PERIOD)?))
}
