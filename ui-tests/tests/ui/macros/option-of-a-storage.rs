//! row: macros
//! error: macro
//! says: what the configuration may leave out is written `#[when(condition)]
//! An optional field in the host's way.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Vision {
    pub layer: Option<LayerWeights>,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Vision {
    #[when(layers > 1)]
    pub layer: LayerWeights,
}

pub fn main() {
    let _: Option<Vision> = None;
}
