//! row: d
//! error: E0507
//! says: cannot move out of `*cx`
//! The right to take spans, kept from a view: with it, a capture could take spans of another engine's weights.

#![forbid(unsafe_code)]

use memtier::__private::Cx;
use memtier::*;
use ui_tests::*;

pub fn keep<P: Place>(cx: &Cx<P>) -> Option<Cx<P>> {
    #[cfg(crime)]
    return Some(*cx);
    #[cfg(not(crime))]
    return None;
}

pub fn main() {}
