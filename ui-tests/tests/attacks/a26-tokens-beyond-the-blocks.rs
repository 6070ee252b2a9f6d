//! Rows r, s: more tokens than the blocks hold, and a mark that was taken before the launch it stands for.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving_late();
    let mut ticket = ticket(&engine);
    let early = engine.step::<Llama>(&mut stream)?.finish()?;
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    let late = step.finish()?;
    assert!(matches!(ticket.advance(Tokens::new(1000), &late), Err(AdvanceError::BeyondBlocks { .. })));
    assert_eq!(ticket.advance(Tokens::new(1), &early), Err(AdvanceError::NotReached { block: 0 }));
    ticket.advance(Tokens::new(1), &late)?;
    assert!(ticket.written(&early.wait()?).is_err(), "the write is in flight");
    assert_eq!(ticket.written(&late.wait()?)?.publish().tokens(), Tokens::new(1));
    Ok(())
}
