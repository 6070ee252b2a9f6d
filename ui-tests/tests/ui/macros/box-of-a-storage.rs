//! row: macros
//! error: macro
//! says: a storage owns its fields already: write `layer: LayerWeights`
//! A pointer to what is owned anyway.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layer: Box<LayerWeights>,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layer: LayerWeights,
}

pub fn main() {
    let _: Option<Layers> = None;
}
