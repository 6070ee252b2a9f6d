//! Row b: a model cannot end while a page table row names blocks, also when their request is gone.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    drop(step);
    drop(ticket);
    let busy = engine.drain().err().ok_or("drained with a row set")?;
    assert!(matches!(busy.cause, Busy::Blocks { live, .. } if live == Blocks::new(1)));
    let mut engine = busy.engine;
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.clear(step.on, 0)?;
    drop(step);
    engine.drain()?.end_model();
    Ok(())
}
