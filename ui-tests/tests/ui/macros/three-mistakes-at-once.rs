//! row: macros
//! error: macro
//! says: no tier is called `ModelResidnt`
//! Three mistakes: all of them are reported, each once.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResidnt, dims = Dims)]
pub struct Norms {
    #[shape(hidden, align = "256")]
    pub norm: f32,
    pub bias: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden, align = 256)]
    pub norm: f32,
    #[shape(hidden)]
    pub bias: f32,
}

pub fn main() {
    assert!(Norms::price(&DIMS).is_ok());
}
