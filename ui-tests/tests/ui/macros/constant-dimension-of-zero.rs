//! row: u
//! error: E0080
//! says: a dimension of `norm` is zero
//! A constant dimension that is nothing.

use memtier::*;
use ui_tests::*;

const LAYERS: usize = 2;

#[cfg(crime)]
#[tier(ModelResident, dims = ())]
pub struct Norms {
    #[shape(LAYERS - 2, 8)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = ())]
pub struct Norms {
    #[shape(LAYERS - 1, 8)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&()).is_ok());
}
