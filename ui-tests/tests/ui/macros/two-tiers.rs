//! row: macros
//! error: macro
//! says: the tier is given twice
//! A struct with two lives.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, EnginePersistent, dims = Dims)]
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
