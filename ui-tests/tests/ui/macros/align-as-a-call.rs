//! row: macros
//! error: macro
//! says: options of `shape` are written `align = ..`
//! An option of a shape written as a call.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden, align(256))]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden, align = 256)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
