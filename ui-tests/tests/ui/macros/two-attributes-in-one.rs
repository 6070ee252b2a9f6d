//! row: macros
//! error: macro
//! says: expected `]`, found `,`
//! Two attributes in one pair of brackets.

use memtier::*;
use ui_tests::*;

// A syntax error cannot be cut out with `cfg`: the crime is a file of its own.
#[cfg(crime)]
#[path = "two-attributes-in-one.inc"]
mod crime;
#[cfg(crime)]
pub use crime::*;

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
pub struct Norms {
    #[shape(hidden)]
    #[align(256)]
    pub norm: f32,
}

pub fn main() {
    let _: Option<Norms> = None;
}
