//! row: p
//! error: E0425
//! says: cannot find type `Token` in crate `memtier`
//! Declaring that a planning engine of one's own bundle serves: `drain` and `end_model` straight from there.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Own {
    pub work: DecodeWorkspace,
}

#[cfg(crime)]
impl EndsModel<Own> for Planning<Own> {
    fn into_drained(self, _: memtier::Token) -> Serving<Drained<Own>> {
        unreachable!()
    }
}

pub fn main() {
    let _: Option<Own> = None;
}
