//! row: m
//! error: E0499
//! says: cannot borrow `step` as mutable more than once
//! A view that is held while a graph writes the same buffers.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    let on = step.on;
    let tokens = &mut step.buffers.work.tokens;
    on.write(tokens, &[1])?;
    #[cfg(crime)]
    step.replay(graph)?;
    on.write(tokens, &[2])?;
    #[cfg(not(crime))]
    step.replay(graph)?;
    Ok(())
}
