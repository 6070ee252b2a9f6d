//! row: macros
//! error: macro
//! says: `shape` says how a storage is laid out
//! A shape on a part.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Model {
    #[shape(hidden)]
    pub work: DecodeWorkspace,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Model> = None;
}
