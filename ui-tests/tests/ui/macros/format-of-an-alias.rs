//! row: macros
//! error: E0277
//! says: `f32` has its own size
//! A run-time format for an element behind an alias.

use memtier::*;
use ui_tests::*;

pub type Weight = f32;
pub type Stored = Packed<Format>;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(vocab, hidden)]
    #[format(Format)]
    pub weight: Weight,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(vocab, hidden)]
    #[format(Format)]
    pub weight: Stored,
}

pub fn main() {
    let _: Option<Head> = None;
}
