//! Inputs are written through views, a graph is replayed, results are read: in one step.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.tokens, &[1])?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.replay(graph)?;
    step.on.read(&step.buffers.work.logits, &mut [0.0; 256])?;
    let fence = step.finish()?;
    ticket.advance(Tokens::new(1), &fence)?;
    Ok(())
}
