//! Row r: results are handled out of order, and the older launch's proof publishes and retires what the newer one writes.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let mut ticket = engine.bundle().kv.open(Tokens::new(4));
    ticket.extend(Tokens::new(2))?;
    let mut fences = Vec::new();
    for index in 0..2 {
        let mut step = engine.step(&mut stream)?;
        step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, index)?, &[1.0; 8])?;
        fences.push(step.finish()?);
    }
    ticket.advance(Tokens::new(1), &fences[1])?;
    // The second token's block was out of the first launch's reach.
    assert_eq!(ticket.advance(Tokens::new(1), &fences[0]), Err(AdvanceError::NotReached { block: 1 }));
    ticket.advance(Tokens::new(1), &fences[1])?;
    let early = fences[0].wait()?;
    assert!(ticket.written(&early).is_err(), "the second write is in flight");
    assert!(ticket.retire(&early).is_err(), "the second write is in flight");
    Ok(())
}
