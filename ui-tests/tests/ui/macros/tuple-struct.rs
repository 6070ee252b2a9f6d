//! row: macros
//! error: macro
//! says: `#[tier]` cannot be used on a tuple struct: fields need names
//! Buffers without names: nothing could be reported about them.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms(#[shape(hidden)] pub f32);

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
