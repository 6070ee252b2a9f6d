//! row: macros
//! error: macro
//! says: a dimension is zero
//! A field without memory.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Scale {
    #[shape(hidden, 0)]
    pub scale: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Scale {
    #[shape(hidden, 1)]
    pub scale: f32,
}

pub fn main() {
    let _: Option<Scale> = None;
}
