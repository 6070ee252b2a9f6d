//! row: macros
//! error: macro
//! says: no lifetime here: a storage owns its memory
//! A storage that borrows.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Norms<'a> {
    #[shape(hidden)]
    pub norm: f32,
    pub name: &'a str,
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
