//! row: g
//! error: E0277
//! says: a kernel cannot write `StableSpan<'_, BlockId<GlobalKv<f32>>, Eager<Host>>`
//! Numbers in a page table: they may name anybody's block, or none.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.on.write(&mut step.buffers.table.ids(), &[0, 1, 2])?;
    #[cfg(not(crime))]
    step.buffers.table.set(step.on, 0, &ticket)?;
    drop(ticket);
    Ok(())
}
