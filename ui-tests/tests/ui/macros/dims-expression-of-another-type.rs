//! row: macros
//! error: E0277
//! says: `&usize` is not `Dims`, the dims of this storage
//! Dims of a nested storage that are something else.

use memtier::*;
use ui_tests::*;

pub struct Shape {
    pub count: usize,
    pub inner: Dims,
}

#[cfg(crime)]
#[tier(ModelResident, dims = Shape)]
pub struct Layers {
    #[dims(count)]
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
