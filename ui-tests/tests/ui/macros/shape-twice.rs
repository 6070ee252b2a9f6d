//! row: macros
//! error: macro
//! says: the shape is given twice
//! Two shapes for one field.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(layers)]
    #[shape(hidden)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(layers, hidden)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
