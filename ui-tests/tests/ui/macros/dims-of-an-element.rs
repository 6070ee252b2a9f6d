//! row: macros
//! error: macro
//! says: `dims` is for nested storages
//! Dims of an element.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    #[dims(hidden)]
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
