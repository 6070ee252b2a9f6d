//! row: a
//! error: E0505
//! says: cannot move out of `step` because it is borrowed
//! The address of a block, kept when the forward pass is over.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let step = engine.step(&mut stream)?;
    let on = step.on;
    let block = step.buffers.kv.block(&ticket, 0)?;
    #[cfg(crime)]
    step.finish()?;
    on.read(block, &mut [0.0; 8])?;
    #[cfg(not(crime))]
    step.finish()?;
    Ok(())
}
