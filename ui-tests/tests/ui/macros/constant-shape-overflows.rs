//! row: u
//! error: E0080
//! says: overflow
//! A constant size that leaves 64 bits, although each dimension does not.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = ())]
pub struct Huge {
    #[shape(1 << 40, 1 << 30)]
    pub weight: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = ())]
pub struct Huge {
    #[shape(1 << 4, 1 << 3)]
    pub weight: f32,
}

pub fn main() {
    assert!(Huge::price(&()).is_ok());
}
