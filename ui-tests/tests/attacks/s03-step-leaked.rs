//! Rows c, r: a step is leaked. Its launches belong to it all the same, and the next step goes on.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let mut ticket = ticket(&engine);
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    let mut scratch = step.scratch.take::<f32>(64)?;
    step.on.write(&mut scratch, &[1.0; 64])?;
    std::mem::forget(step);
    drop(ticket);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63), "its write is in flight");
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    fence.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64));
    let engine = engine.drain()?.resume();
    engine.drain()?.end_model();
    Ok(())
}
