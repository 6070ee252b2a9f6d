//! `llama4`: three layers that attend within chunks of 8192 tokens to one that attends to everything.

use super::common::Common;
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: u64 = 4;
const CHUNK: u64 = 8192;

pub(super) fn llama4(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    // A window of zero is how a file says that no layer has one.
    Ok(match facts.tokens("attention.sliding_window")? {
        Some(0) => common.all_attending(),
        stated => common.with_windows(stated.unwrap_or(CHUNK), &common.pattern(facts, PERIOD)?),
    })
}
