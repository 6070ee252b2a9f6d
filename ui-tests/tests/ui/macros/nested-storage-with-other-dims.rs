//! row: macros
//! error: E0277
//! says: cannot be a field of `ModelResident` storage with dims `Shape`
//! A nested struct whose shapes are made of other numbers.

use memtier::*;
use ui_tests::*;

pub struct Shape {
    pub inner: Dims,
}

#[cfg(crime)]
#[tier(ModelResident, dims = Shape)]
pub struct Layers {
    pub layer: LayerWeights,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Shape)]
pub struct Layers {
    #[dims(inner)]
    pub layer: LayerWeights,
}

pub fn main() {
    let _: Option<Layers> = None;
}
