//! row: macros
//! error: macro
//! says: a shape says how many elements there are: write `query: f32`
//! A container in place of the element.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    #[shape(hidden)]
    pub query: Vec<f32>,
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
