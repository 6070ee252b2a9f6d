//! row: macros
//! error: macro
//! says: `#[tier]` cannot be used on this item: it owns nothing
//! The attribute on a function.

use memtier::*;
use ui_tests::*;

#[cfg_attr(crime, tier(ModelResident, dims = Dims))]
pub fn norms() -> usize {
    DIMS.hidden
}

pub fn main() {
    assert_eq!(norms(), 8);
}
