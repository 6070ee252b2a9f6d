//! row: s
//! error: E0277
//! says: a shape cannot calculate with `Bytes`
//! A shape calculated with another unit than elements.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub row: Bytes,
}

impl Sizes {
    fn elements(&self) -> usize {
        self.row.count() as usize / 4
    }
}

#[cfg(crime)]
#[tier(ModelResident, dims = Sizes)]
pub struct Norms {
    #[shape((row + row).count() as usize)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Sizes)]
pub struct Norms {
    #[shape(elements() + elements())]
    pub norm: f32,
}

pub fn main() {
    assert!(Norms::price(&Sizes { row: Bytes::new(32) }).is_ok());
}
