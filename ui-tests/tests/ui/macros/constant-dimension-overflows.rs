//! row: u
//! error: E0080
//! says: attempt to compute
//! A constant dimension that leaves 64 bits.

use memtier::*;
use ui_tests::*;

const ROWS: usize = 1 << 40;

#[cfg(crime)]
#[tier(ModelResident, dims = ())]
pub struct Huge {
    #[shape(ROWS * ROWS, 8)]
    pub weight: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = ())]
pub struct Huge {
    #[shape(ROWS, 8)]
    pub weight: f32,
}

pub fn main() {
    assert!(Huge::price(&()).is_ok());
}
