//! row: b
//! error: E0507
//! says: cannot move out of a shared reference
//! Taking weights out of the bundle, so that they outlive their model.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let (engine, _stream) = serving();
    #[cfg(crime)]
    let Llama { weights, .. } = *engine.bundle();
    #[cfg(not(crime))]
    let Llama { weights: _, .. } = engine.bundle();
}
