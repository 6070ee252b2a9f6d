//! Row a: a request gives blocks up while its row names them: nobody gets them until the row is set again.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = engine.bundle().kv.open(Tokens::new(4));
    ticket.extend(Tokens::new(4))?;
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.finish()?.wait()?;
    ticket.truncate(Blocks::new(1));
    ticket.evict(0);
    assert_eq!((ticket.blocks(), engine.bundle().kv.free()), (Blocks::ZERO, Blocks::new(60)));
    let mut all = engine.bundle().kv.open(Tokens::new(64));
    assert!(all.push(Blocks::new(61)).is_err());
    all.push(Blocks::new(60))?;
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.finish()?.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(4));
    Ok(())
}
