//! row: b
//! error: E0119
//! says: conflicting implementations of trait `Survives`
//! Saying of one's own weights that they survive a swap.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
impl Survives for LlamaWeights2 {
    fn is_what_was_priced(&self, _: &<Self as Declare>::Priced) -> bool {
        true
    }
}

#[tier(ModelResident, dims = Dims)]
pub struct LlamaWeights2 {
    #[shape(hidden)]
    pub norm: f32,
}

pub fn main() {
    assert!(LlamaWeights2::price(&DIMS).is_ok());
}
