//! `falcon-h1`: every layer attends and recurs, side by side.

use super::common::{Common, mamba_state};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

pub(super) fn falcon_h1(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let state = Some(mamba_state(facts)?);
    Ok(common.all_attending().into_iter().map(|layer| LayerMemory { state, ..layer }).collect())
}
