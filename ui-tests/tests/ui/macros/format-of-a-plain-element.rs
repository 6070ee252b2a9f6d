//! row: macros
//! error: macro
//! says: `f32` has its own size: `format` is for `Packed<..>` fields
//! A run-time format for an element that has its own.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(vocab, hidden)]
    #[format(Format)]
    pub weight: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(vocab, hidden)]
    #[format(Format)]
    pub weight: Packed<Format>,
}

pub fn main() {
    let _: Option<Head> = None;
}
