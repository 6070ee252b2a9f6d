//! row: macros
//! error: macro
//! says: `shape` is written `#[shape(rows, columns)]`
//! A shape in the form of an option.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape = 8]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(8)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
