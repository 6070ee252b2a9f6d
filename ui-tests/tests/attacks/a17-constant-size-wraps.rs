//! row: u
//! error: E0080
//! says: this many bytes leave the range of 64 bits
//! A constant number of MiB whose bits are shifted out.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
const BUDGET: Bytes = Bytes::mib((1 << 44) + 1);
#[cfg(not(crime))]
const BUDGET: Bytes = Bytes::mib((1 << 43) + 1);

pub fn main() {
    assert_eq!(BUDGET.in_mib(), (1 << 43) + 1);
}
