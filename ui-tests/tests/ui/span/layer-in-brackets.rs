//! row: m
//! error: E0277
//! says: one of an array of storages is taken with `at`
//! A layer taken like an element of a slice.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let query = step.buffers.weights.layers[1].query;
    #[cfg(not(crime))]
    let query = step.buffers.weights.layers.at(1).ok_or("a layer")?.query;
    assert_eq!(query.len(), 64);
    Ok(())
}
