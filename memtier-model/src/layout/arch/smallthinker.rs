//! `smallthinker`: of every four layers the first attends to everything, the others to the last 4096 tokens. A file states a
//! window where there is one, and engines use that of the published model whatever it says.

use super::common::{Common, window};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

const PERIOD: usize = 4;
const WINDOW: u64 = 4096;

pub(super) fn smallthinker(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    if window(facts)?.is_none() {
        return Ok(common.all_attending());
    }
    let windowed: Vec<bool> = (0..common.blocks).map(|layer| !layer.is_multiple_of(PERIOD)).collect();
    Ok(common.with_windows(WINDOW, &windowed))
}
