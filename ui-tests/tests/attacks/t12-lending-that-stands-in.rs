//! row: m
//! error: E0308
//! says: mismatched types
//! A module in place of memtier, whose parts are lent to both sides of an overlap.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub struct Lent<'s, T>(pub &'s mut T, pub u64);
        #[cfg(crime)]
        impl<'s, T> Lent<'s, T> {
            pub fn new(part: &'s mut T, _: &Lend) -> Self {
                Lent(part, 0)
            }
        }
    }
}

#[graph_captured(crate = self::fake)]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() -> Result<(), Error> {
    assert_eq!(Model::demands(&ModelSpec { work: DIMS })?.len(), 1);
    Ok(())
}
