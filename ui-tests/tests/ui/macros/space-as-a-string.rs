//! row: macros
//! error: macro
//! says: `space` takes a type, not a string: write `space = S`
//! The right space in the wrong form.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured(space = "S")]
pub struct Model<S: Space = Host> {
    pub work: DecodeWorkspace<S>,
}

#[cfg(not(crime))]
#[graph_captured(space = S)]
pub struct Model<S: Space = Host> {
    pub work: DecodeWorkspace<S>,
}

pub fn main() {
    let _: Option<Model> = None;
}
