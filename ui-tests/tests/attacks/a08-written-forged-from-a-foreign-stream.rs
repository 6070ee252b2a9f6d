//! Row r: the fence of another engine's idle stream proves that unwritten blocks are written.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut foreign) = serving();
    let mut ticket = engine.bundle().kv.open(Tokens::new(8));
    ticket.extend(Tokens::new(8))?;
    let fence = other.step::<Llama>(&mut foreign)?.finish()?;
    assert_eq!(ticket.advance(Tokens::new(8), &fence), Err(AdvanceError::ForeignFence));
    // Nor does one of its own stream, when no launch could reach the blocks.
    let fence = engine.step::<Llama>(&mut stream)?.finish()?;
    assert_eq!(ticket.advance(Tokens::new(8), &fence), Err(AdvanceError::NotReached { block: 0 }));
    assert_eq!(ticket.written(&fence.wait()?)?.publish().tokens(), Tokens::ZERO);
    Ok(())
}
