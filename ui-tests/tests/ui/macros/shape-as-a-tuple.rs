//! row: macros
//! error: macro
//! says: dimensions stand side by side: write `#[shape(hidden, vocab)]`
//! Dimensions in parentheses of their own.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    #[shape((hidden, vocab))]
    pub query: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Made {
    #[shape(hidden, vocab)]
    pub query: f32,
}

pub fn main() {
    let _: Option<Made> = None;
}
