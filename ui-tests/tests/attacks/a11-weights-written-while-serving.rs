//! row: f
//! error: E0425
//! says: cannot find type `Token` in crate `memtier`
//! Declaring that one's own bundle takes uploads while serving. The orphan rule would allow it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Own {
    pub weights: LlamaWeights,
}

#[cfg(crime)]
impl StagesUploads<Own> for Serving<Own> {
    fn target(&mut self, token: memtier::Token) -> &mut Own {
        OwnsBuffers::<Own>::parts(self, token).bundle
    }
}

pub fn main() {
    let _: Option<Own> = None;
}
