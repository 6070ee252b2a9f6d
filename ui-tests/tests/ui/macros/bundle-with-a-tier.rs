//! row: macros
//! error: macro
//! says: `#[graph_captured]` takes no tier: each part has its own
//! A bundle with one tier for all.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured(ModelResident)]
pub struct Model {
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
