//! row: s
//! error: E0308
//! says: expected `usize`, found `Bytes`
//! A shape made of a number with another unit.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub rows: usize,
    pub row: Bytes,
}

#[cfg(crime)]
#[tier(ModelResident, dims = Sizes)]
pub struct Norms {
    #[shape(row * rows)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Sizes)]
pub struct Norms {
    #[shape(row.count() as usize * rows)]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&Sizes { rows: 2, row: Bytes::new(32) }).is_ok());
}
