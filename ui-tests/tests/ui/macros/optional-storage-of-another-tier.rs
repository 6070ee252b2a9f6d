//! row: e
//! error: E0277
//! says: cannot be a field of `EnginePersistent` storage
//! Weights of other dims inside a workspace.

use memtier::*;
use ui_tests::*;

pub struct Shape {
    pub inner: Dims,
}

#[cfg(crime)]
#[tier(EnginePersistent, dims = Shape)]
pub struct Cache {
    #[dims(inner)]
    pub layer: LayerWeights,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Shape)]
pub struct Cache {
    #[dims(inner)]
    pub layer: LayerWeights,
}

pub fn main() {
    let _: Option<Cache> = None;
}
