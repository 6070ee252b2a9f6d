//! row: g
//! error: E0308
//! says: expected `&mut StableSpanMut<'_, _, _>`
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
