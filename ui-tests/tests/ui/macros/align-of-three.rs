//! row: macros
//! error: macro
//! says: an alignment is a power of two and at most 4096 bytes, not 3
//! An alignment that is none.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    #[align(3)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    #[align(512)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
