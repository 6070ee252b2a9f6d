//! row: q
//! error: E0277
//! says: `ModelLines` is not what a bundle is carved from
//! A module in place of memtier, whose lines are looked at by nobody.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub mod fake {
    pub mod __private {
        pub use memtier::__private::*;

        #[cfg(crime)]
        pub trait Lines: Send + Sized {
            type Bundle;
            fn check(&self, check: &mut Check<'_>) -> Result<(), CarveError>;
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
