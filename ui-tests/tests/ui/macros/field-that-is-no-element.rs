//! row: macros
//! error: E0277
//! says: `String` is not an element
//! A shape around something that device memory cannot hold: the field's type is marked.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Names {
    #[shape(vocab)]
    pub names: String,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Names {
    #[shape(vocab)]
    pub names: u32,
}

pub fn main() {
    let _: Option<Names> = None;
}
