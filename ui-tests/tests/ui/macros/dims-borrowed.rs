//! row: macros
//! error: macro
//! says: dims are owned by what is declared with them: write `dims = Dims`
//! Dims by reference.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = &Dims)]
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
