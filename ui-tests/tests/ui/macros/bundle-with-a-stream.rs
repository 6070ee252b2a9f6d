//! row: macros
//! error: macro
//! says: is no part: declare it by itself
//! A stream among the parts.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Made {
    pub work: DecodeWorkspace,
    pub stream: Stream<Host>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Made {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Made> = None;
}
