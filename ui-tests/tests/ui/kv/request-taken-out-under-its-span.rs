//! row: a
//! error: E0502
//! says: cannot borrow `slot` as mutable because it is also borrowed as immutable
//! A slot of the batch emptied while its block is in use.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut slot = Some(ticket(&engine));
    let step = engine.step(&mut stream)?;
    let block = step.buffers.kv.block(slot.as_ref().ok_or("a request")?, 0)?;
    #[cfg(crime)]
    drop(slot.take());
    step.on.read(block, &mut [0.0; 8])?;
    #[cfg(not(crime))]
    drop(slot.take());
    Ok(())
}
