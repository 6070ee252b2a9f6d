//! row: macros
//! error: macro
//! says: the tier is a name, not a string
//! The right tier in the wrong form.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier("ModelResident", dims = Dims)]
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
