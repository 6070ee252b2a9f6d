//! row: u
//! error: E0080
//! says: rows
//! Constant rows that do not hold whole blocks.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = ())]
pub struct Head {
    #[shape(4, 250)]
    pub weight: Q4_K,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = ())]
pub struct Head {
    #[shape(4, 256)]
    pub weight: Q4_K,
}

pub fn main() {
    assert!(Head::price(&()).is_ok());
}
