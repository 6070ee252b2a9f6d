//! row: macros
//! error: macro
//! says: a shape has at least one dimension
//! A shape of no dimensions.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Scale {
    #[shape()]
    pub scale: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Scale {
    #[shape(1)]
    pub scale: f32,
}

pub fn main() {
    let _: Option<Scale> = None;
}
