//! row: macros
//! error: macro
//! says: `#[tier]` cannot be used on a union: buffers never share memory
//! Buffers that share memory.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub union Either {
    #[shape(hidden)]
    pub one: f32,
    #[shape(hidden)]
    pub other: u32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Either {
    #[shape(hidden)]
    pub one: f32,
    #[shape(hidden)]
    pub other: u32,
}

pub fn main() {
    let _: Option<Either> = None;
}
