//! One layer is read while another is written; a helper reads from a write view that it only shares.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    let layers = &mut load.buffers.weights.layers;
    let (mut one, other) = layers.pair(0, 1).ok_or("two layers")?;
    load.on.copy::<f32>(&mut one.query, &other.query)?;
    assert!(layers.pair(1, 1).is_none());
    Ok(())
}
