//! Row a: one request in two rows; its block is free when the last of them is cleared, not before.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.buffers.table.set(step.on, 7, &ticket)?;
    step.buffers.table.set(step.on, 7, &ticket)?;
    assert!(matches!(step.buffers.table.set(step.on, 8, &ticket), Err(RowError::NoRow { row: 8, rows: 8 })));
    step.finish()?.wait()?;
    drop(ticket);
    for (row, free) in [(0, 63), (0, 63), (7, 64)] {
        let mut step = engine.step::<Llama>(&mut stream)?;
        step.buffers.table.clear(step.on, row)?;
        step.finish()?.wait()?;
        assert_eq!(engine.bundle().kv.free(), Blocks::new(free));
    }
    Ok(())
}
