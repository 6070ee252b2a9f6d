//! row: macros
//! error: macro
//! says: the tier is missing
//! How long does it live?

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&DIMS).is_ok());
}
