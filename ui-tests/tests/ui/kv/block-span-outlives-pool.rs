//! row: a
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! The address of a block, used after its pool is gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (ticket, mut values) = (ticket(&engine), [0.0; 8]);
    let step = engine.step(&mut stream)?;
    let block = step.buffers.kv.block(&ticket, 0)?;
    #[cfg(crime)]
    drop(engine);
    step.on.read(block, &mut values)?;
    Ok(())
}
