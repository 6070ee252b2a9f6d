//! row: macros
//! error: macro
//! says: `f32` is an element, not a part
//! A buffer that has no storage around it.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Model {
    pub logits: f32,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Model> = None;
}
