//! row: s
//! error: E0277
//! says: a shape cannot calculate this with `f64`
//! Rounding that only whole numbers have.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub hidden: usize,
    pub ratio: f64,
}

impl Sizes {
    fn inner(&self) -> usize {
        (self.hidden as f64 * self.ratio) as usize
    }
}

#[cfg(crime)]
#[tier(ModelResident, dims = Sizes)]
pub struct Mlp {
    #[shape(ratio.div_ceil(ratio) as usize)]
    pub up: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Sizes)]
pub struct Mlp {
    #[shape(inner())]
    pub up: f32,
}

pub fn main() {
    assert!(Mlp::price(&Sizes { hidden: 8, ratio: 1.5 }).is_ok());
}
