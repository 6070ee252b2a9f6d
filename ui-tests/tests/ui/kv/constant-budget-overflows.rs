//! row: u
//! error: E0080
//! says: this many bytes leave the range of 64 bits
//! A constant size that does not exist.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
pub const BUDGET: Bytes = Bytes::gib(1 << 40);
#[cfg(not(crime))]
pub const BUDGET: Bytes = Bytes::gib(1 << 4);

pub fn main() {
    assert_eq!(BUDGET.in_mib(), 16 << 10);
}
