//! row: macros
//! error: macro
//! says: no tier is called `ModelResidnt`; did you mean `ModelResident`?
//! A tier with a typo.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResidnt, dims = Dims)]
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
