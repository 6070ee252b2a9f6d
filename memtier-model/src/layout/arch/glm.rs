//! `glm-dsa` (GLM 5): latent attention whose tokens are chosen by an index, which only some layers compute. GLM 4 and
//! 4.5 attend to everything and are in `full.rs`.

use super::common::Common;
use super::deepseek;
use crate::layout::LayerMemory;
use crate::layout::error::LayoutError;
use crate::layout::facts::Facts;

pub(super) fn dsa(facts: &Facts<'_>, common: &Common) -> Result<Vec<LayerMemory>, LayoutError> {
    deepseek::sparse(facts, common)
}
