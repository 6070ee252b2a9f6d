//! row: macros
//! error: macro
//! says: `f32` is an element, not a storage: write `#[shape(hidden)] norm: f32`
//! A length in the type instead of the shape.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    pub norm: [f32; hidden],
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
