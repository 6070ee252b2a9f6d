//! row: e
//! error: E0277
//! says: `DecodeWorkspace` cannot be a field of `ModelResident` storage
//! Workspaces nested in weights, one a layer.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Layers {
    pub work: [DecodeWorkspace; layers],
}

#[cfg(not(crime))]
#[tier(EnginePersistent, dims = Dims)]
pub struct Layers {
    pub work: [DecodeWorkspace; layers],
}

pub fn main() {
    #[cfg(not(crime))]
    assert!(Layers::price(&DIMS).is_ok());
}
