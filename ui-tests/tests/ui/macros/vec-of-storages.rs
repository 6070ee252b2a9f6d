//! row: macros
//! error: macro
//! says: an array of storages is written `layers: [LayerWeights; count]`
//! A list on the host's heap.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layers: Vec<LayerWeights>,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub layers: [LayerWeights; layers],
}

pub fn main() {
    let _: Option<Layers> = None;
}
