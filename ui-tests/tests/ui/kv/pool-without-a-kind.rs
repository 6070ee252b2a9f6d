//! row: g
//! error: macro
//! says: `BlockPool<f32>` does not say what its blocks are
//! A pool that does not say how its blocks are used.

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
    #[cfg(crime)]
    pub kv: BlockPool<f32>,
    #[cfg(not(crime))]
    pub kv: BlockPool<GlobalKv<f32>>,
}

pub fn main() {
    let _: Option<Model> = None;
}
