//! Row u: pricing an array of a huge number of layers must not build them.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() {
    for layers in [usize::MAX, 1 << 40, 1 << 20] {
        let error = LlamaWeights::price(&Dims { layers, ..DIMS }).err();
        assert!(matches!(error, Some(SizeError::TooMany { field: "layers", .. })), "{error:?}");
    }
}
