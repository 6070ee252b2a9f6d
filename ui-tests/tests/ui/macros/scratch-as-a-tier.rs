//! row: macros
//! error: macro
//! says: scratch is taken in a step
//! Scratch declared as a struct of arrays.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ForwardScratch, dims = Dims)]
pub struct Rows {
    #[shape(hidden)]
    pub row: f32,
}

#[cfg(not(crime))]
#[tier(EnginePersistent, dims = Dims)]
pub struct Rows {
    #[shape(hidden)]
    pub row: f32,
}

pub fn main() {
    assert!(Rows::price(&DIMS).is_ok());
}
