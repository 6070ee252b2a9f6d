//! row: e
//! error: E0277
//! says: `LayerWeights` cannot be a field of `EnginePersistent` storage
//! Weights nested in a workspace: they would be freed with another arena than the one that holds them.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(EnginePersistent, dims = Dims)]
pub struct Cache {
    pub layer: LayerWeights,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Cache {
    pub layer: LayerWeights,
}

pub fn main() {
    #[cfg(not(crime))]
    assert!(Cache::price(&DIMS).is_ok());
}
