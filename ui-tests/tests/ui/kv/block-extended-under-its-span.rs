//! row: a
//! error: E0502
//! says: cannot borrow `ticket` as mutable
//! A block given up while its address is in use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    let block = step.buffers.kv.block(&ticket, 0)?;
    #[cfg(crime)]
    ticket.truncate(Blocks::ZERO);
    host::square(step.on, &mut step.buffers.work.attn, block)?;
    #[cfg(not(crime))]
    ticket.truncate(Blocks::ZERO);
    Ok(())
}
