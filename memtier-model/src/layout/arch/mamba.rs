//! `mamba` and `mamba2`: every layer recurs, none attends.

use super::common::{Common, mamba_state};
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

pub(super) fn mamba(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    let state = mamba_state(facts)?;
    Ok((0..common.blocks).map(|layer| common.recurring(layer, state)).collect())
}
