//! row: q
//! error: E0277
//! says: `DecodeWorkspace` is not a bundle
//! A storage declared as if it were everything that the engine owns.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    #[cfg(crime)]
    let _lines = engine.declare_bundle::<DecodeWorkspace>(DIMS);
    #[cfg(not(crime))]
    let _line: Line<DecodeWorkspace> = engine.declare(DIMS);
}
