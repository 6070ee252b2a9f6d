//! row: macros
//! error: macro
//! says: a bundle without parts
//! A bundle of nothing.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Model {}

#[cfg(not(crime))]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Model> = None;
}
