//! row: macros
//! error: macro
//! says: expected `:`
//! A field that is still being typed: the item is still there, so that its other users are no errors.

use memtier::*;
use ui_tests::*;

// A syntax error cannot be cut out with `cfg`: the crime is a file of its own.
#[cfg(crime)]
#[path = "half-typed-field.inc"]
mod crime;
#[cfg(crime)]
pub use crime::*;

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn norms(norms: &NormsRef<'_, Eager<Host>>) -> usize {
    norms.norm.len()
}

pub fn main() {
    assert!(Norms::price(&DIMS).is_ok());
}
