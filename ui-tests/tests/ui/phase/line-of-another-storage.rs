//! row: q
//! error: E0308
//! says: expected `Line<LlamaWeights<_>>`, found `Line<LayerWeights>`
//! A line of one storage in the place of another one's.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    let layer: Line<LayerWeights> = engine.declare(DIMS);
    let lines = declare::<Host>(&mut engine);
    #[cfg(crime)]
    let _lines = LlamaLines { weights: layer, ..lines };
    #[cfg(not(crime))]
    let (_layer, _lines) = (layer, lines);
}
