//! row: macros
//! error: macro
//! says: `dims` takes a type, not a string: write `dims = Dims`
//! The right type in the wrong form.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = "Dims")]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
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
