//! A helper that takes `&` of a write view with nested storages, and reads from it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn first(weights: &LlamaWeightsMut<'_, Uploading<Host>>) -> Option<usize> {
    Some(weights.layers.read().at(0)?.query.len())
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let load = engine.load(&mut stream)?;
    assert_eq!(first(&load.buffers.weights), Some(64));
    Ok(())
}
