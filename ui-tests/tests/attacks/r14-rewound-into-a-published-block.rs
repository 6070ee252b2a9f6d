//! Rows g, r: a request publishes its block, then takes its tokens back, with its page table row still set: the next launch would
//! write into what others read.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut ticket, settled) = written(&mut engine, &mut stream)?;
    ticket.extend(Tokens::new(1))?;
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.finish()?.wait()?;
    let prefix = ticket.written(&settled)?.publish();
    let refused = ticket.rewind(Tokens::new(1));
    assert_eq!(refused, Err(RewindError { block: 0, referents: 2 }));
    assert_eq!(ticket.tokens(), Tokens::new(1), "it is as it was");
    ticket.rewind(Tokens::ZERO)?;
    // With the row cleared it may, and then the row cannot be set before the block is its own.
    let mut step = engine.step::<Llama>(&mut stream)?;
    let LlamaView { table, kv, .. } = &mut step.buffers;
    table.clear(step.on, 0)?;
    ticket.rewind(Tokens::new(7))?;
    assert_eq!(ticket.tokens(), Tokens::ZERO);
    assert!(matches!(table.set(step.on, 0, &ticket), Err(RowError::Shared { .. })));
    assert!(kv.own(step.on, &mut ticket, 0)?);
    table.set(step.on, 0, &ticket)?;
    assert_eq!(prefix.tokens(), Tokens::new(1));
    Ok(())
}
