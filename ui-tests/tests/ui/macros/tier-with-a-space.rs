//! row: macros
//! error: macro
//! says: the space is an option
//! The space as an argument of the tier, as types have it.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident<Cuda>, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, space = Cuda, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&DIMS).is_ok());
}
