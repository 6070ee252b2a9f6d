//! row: macros
//! error: macro
//! says: a bundle owns its parts, and the engine the bundle: write `weights: LlamaWeights`
//! A part that others could hold, too.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Made {
    pub weights: std::sync::Arc<LlamaWeights>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Made {
    pub weights: LlamaWeights,
}

pub fn main() {
    let _: Option<Made> = None;
}
