//! row: a
//! error: E0505
//! says: cannot move out of `ticket` because it is borrowed
//! The address of a block, used after its request has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, settled) = written(&mut engine, &mut stream)?;
    let mut step = engine.step(&mut stream)?;
    let block = step.buffers.kv.block(&ticket, 0)?;
    #[cfg(crime)]
    ticket.retire(&settled)?;
    host::square(step.on, &mut step.buffers.work.attn, block)?;
    step.finish()?;
    Ok(())
}
