//! row: macros
//! error: macro
//! says: `Made` would hold itself, and have no size
//! A storage made of itself.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    pub layers: [Made; layers],
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    pub layers: [LayerWeights; layers],
}

pub fn main() {
    let _: Option<Made> = None;
}
