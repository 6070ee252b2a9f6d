//! row: macros
//! error: macro
//! says: an array of storages has one count: write `layers: [LayerWeights; (layers) * (2)]`
//! Storages in rows and columns.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    pub layers: [[LayerWeights; 2]; layers],
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    pub layers: [LayerWeights; layers * 2],
}

pub fn main() {
    let _: Option<Made> = None;
}
