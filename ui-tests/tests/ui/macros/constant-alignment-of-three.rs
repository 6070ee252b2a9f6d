//! row: u
//! error: E0080
//! says: the alignment of `norm` is no power of two, or larger than 4096
//! A constant alignment that is none.

use memtier::*;
use ui_tests::*;

const LINE: u64 = 64;

#[cfg(crime)]
#[tier(ModelResident, dims = ())]
pub struct Norms {
    #[shape(8, align = LINE * 3)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = ())]
pub struct Norms {
    #[shape(8, align = LINE * 4)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&()).is_ok());
}
