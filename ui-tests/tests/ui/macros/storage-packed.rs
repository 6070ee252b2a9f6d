//! row: macros
//! error: macro
//! says: no `packed` here
//! A struct whose fields cannot be borrowed.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
#[repr(C, packed)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
#[repr(C)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

pub fn main() {
    let _: Option<Made> = None;
}
