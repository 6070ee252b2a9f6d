//! row: macros
//! error: macro
//! says: a shape says how many elements there are
//! A length in the type and in the shape.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(layers)]
    pub norm: [f32; 8],
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(layers, 8)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
