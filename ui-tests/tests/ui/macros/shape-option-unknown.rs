//! row: macros
//! error: macro
//! says: `shape` has no option `aling`; did you mean `align`?
//! An option of a shape with a typo.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden, aling = 256)]
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
