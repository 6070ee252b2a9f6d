//! row: macros
//! error: E0277
//! says: `Dims` cannot be a field of `ModelResident` storage
//! A nested struct that is not annotated.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layer: Dims,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layer: LayerWeights,
}

pub fn main() {
    let _: Option<Layers> = None;
}
