//! row: macros
//! error: macro
//! says: `#[tier]` cannot be used on an enum: what is optional gets its own field
//! Buffers of which only one is there.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub enum Head {
    Full {
        #[shape(hidden)]
        weight: f32,
    },
    None,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Head {
    #[shape(hidden)]
    #[when(vocab > 0)]
    pub weight: f32,
}

pub fn main() {
    let _: Option<Head> = None;
}
