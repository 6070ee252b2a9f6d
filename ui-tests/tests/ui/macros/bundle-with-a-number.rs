//! row: macros
//! error: macro
//! says: `usize` is a value of the host
//! A number of the host among the parts.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Made {
    pub work: DecodeWorkspace,
    pub layers: usize,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Made {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Made> = None;
}
