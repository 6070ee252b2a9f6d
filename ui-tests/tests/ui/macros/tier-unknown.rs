//! row: macros
//! error: macro
//! says: there are `ModelResident`, for what goes with its model
//! A tier that is nothing like one.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(Vram, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(EnginePersistent, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&DIMS).is_ok());
}
