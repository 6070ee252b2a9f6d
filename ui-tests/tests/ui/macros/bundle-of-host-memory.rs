//! row: d
//! error: macro
//! says: `Box<[f32]>` is host memory, which no plan has seen
//! Host memory in a bundle: a graph would bake it, and a `Vec` moves when it grows.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
    pub logits: Box<[f32]>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Model {
    pub work: DecodeWorkspace,
}

pub fn main() {
    let _: Option<Model> = None;
}
