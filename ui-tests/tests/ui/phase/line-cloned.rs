//! row: q
//! error: E0308
//! says: expected `Line<DecodeWorkspace>`, found `&Line<DecodeWorkspace>`
//! A line is a claim: a copy of it would claim the same memory twice.

use memtier::*;
use ui_tests::*;

pub fn claims(line: Line<DecodeWorkspace>) -> Line<DecodeWorkspace> {
    #[cfg(crime)]
    let _again: Line<DecodeWorkspace> = (&line).clone();
    line
}

pub fn main() {
    claims(loading().declare(DIMS));
}
