//! row: macros
//! error: macro
//! says: an option takes its value with `=`: write `dims = ..`
//! An option written like a field.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims: Dims)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

pub fn main() {
    let _: Option<Made> = None;
}
