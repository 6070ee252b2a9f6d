//! row: m
//! error: E0423
//! says: cannot initialize a tuple struct which contains private fields
//! The right to lend parts, made by hand.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn lend(work: &mut DecodeWorkspace) -> usize {
    #[cfg(crime)]
    let lent = memtier::__private::Lend(1).part(work);
    work.hidden_units()
}

/// What anybody may ask.
trait Units {
    fn hidden_units(&self) -> usize;
}
impl Units for DecodeWorkspace {
    fn hidden_units(&self) -> usize {
        0
    }
}

pub fn main() {}
