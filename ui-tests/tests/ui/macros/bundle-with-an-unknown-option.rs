//! row: macros
//! error: macro
//! says: `graph_captured` has no option `spaces`; did you mean `space`?
//! An option of a bundle with a typo.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured(spaces = S)]
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
