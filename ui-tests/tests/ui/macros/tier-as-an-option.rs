//! row: macros
//! error: macro
//! says: the tier stands alone, in front
//! The right tier as if it were an option.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(tier = ModelResident, dims = Dims)]
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
