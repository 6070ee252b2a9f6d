//! row: m
//! error: E0499
//! says: cannot borrow `*layers` as mutable more than once
//! Two write views of layers that may be the same.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut load = engine.load(&mut stream)?;
    let layers = &mut load.buffers.weights.layers;
    #[cfg(crime)]
    let (mut one, two) = (layers.at(0).ok_or("no layer")?, layers.at(1).ok_or("no layer")?);
    #[cfg(not(crime))]
    let (mut one, two) = layers.pair(0, 1).ok_or("no layers")?;
    load.on.copy::<f32>(&mut one.query, &two.query)?;
    Ok(())
}
