//! row: macros
//! error: macro
//! says: `#[graph_captured]` cannot be used on a tuple struct
//! Parts without names.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Model(pub DecodeWorkspace);

#[cfg(not(crime))]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Model> = None;
}
