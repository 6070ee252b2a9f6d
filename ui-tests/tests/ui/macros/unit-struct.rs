//! row: macros
//! error: macro
//! says: `#[tier]` cannot be used on a unit struct: there is nothing to own
//! A storage of nothing.

use memtier::*;
use ui_tests::*;

#[cfg_attr(crime, tier(ModelResident, dims = Dims))]
pub struct Nothing;

pub fn main() {
    let Nothing = Nothing;
}
