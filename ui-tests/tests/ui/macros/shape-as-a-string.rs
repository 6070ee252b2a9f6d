//! row: macros
//! error: macro
//! says: a dimension is an expression, not a string
//! A dimension in the wrong form.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape("hidden")]
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
