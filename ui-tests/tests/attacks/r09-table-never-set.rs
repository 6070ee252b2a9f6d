//! Row g: a launch or a replay over a page table of which no row was ever set: it names no block, in particular not block 0.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut victim = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut victim, 0)?, &[5.0; 8])?;
    step.replay(graph)?;
    let mut values = [0.0; 8];
    step.on.read(step.buffers.kv.block(&victim, 0)?, &mut values)?;
    assert_eq!(values, [5.0; 8], "an empty table led into somebody's block");
    Ok(())
}
