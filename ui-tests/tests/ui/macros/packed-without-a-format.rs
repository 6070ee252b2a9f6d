//! row: macros
//! error: macro
//! says: has a format that is known at run time: say which
//! A packed tensor whose size nobody can tell.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(vocab, hidden)]
    pub weight: Packed<Format>,
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
