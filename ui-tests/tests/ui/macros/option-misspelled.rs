//! row: macros
//! error: macro
//! says: `tier` has no option `dim`; did you mean `dims`?
//! An option with a typo.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dim = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
