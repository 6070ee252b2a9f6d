//! row: macros
//! error: macro
//! says: no tier is called `Weights`; did you mean `ModelResident`?
//! A tier called for what is in it.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(Weights, dims = Dims)]
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
