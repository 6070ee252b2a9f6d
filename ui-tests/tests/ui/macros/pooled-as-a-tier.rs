//! row: macros
//! error: macro
//! says: pooled memory is no struct of arrays
//! A pool declared as a struct of arrays.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(Pooled, dims = Dims)]
pub struct Kv {
    #[shape(hidden)]
    pub keys: f32,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Kv {
    pub keys: BlockPool<GlobalKv<f32>>,
}

pub fn main() {
    let _: Option<Kv> = None;
}
