//! row: u
//! error: E0080
//! says: attempt to compute
//! mode: build
//! A size made of const parameters, which only an instance knows: caught where code is generated.

use memtier::*;
use ui_tests::*;

#[tier(ModelResident, dims = ())]
pub struct Head<const ROWS: usize, const COLUMNS: usize> {
    #[shape(ROWS * COLUMNS)]
    pub weight: f32,
}

pub fn main() {
    #[cfg(crime)]
    assert!(Head::<{ 1 << 40 }, { 1 << 30 }>::price(&()).is_ok());
    #[cfg(not(crime))]
    assert!(Head::<{ 1 << 4 }, { 1 << 3 }>::price(&()).is_ok());
}
