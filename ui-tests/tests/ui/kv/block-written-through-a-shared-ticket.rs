//! row: o
//! error: E0308
//! says: types differ in mutability
//! Writing the blocks of a request that others may be reading.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut ticket = ticket(&engine);
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let mut block = step.buffers.kv.block_mut(&ticket, 0)?;
    #[cfg(not(crime))]
    let mut block = step.buffers.kv.block_mut(&mut ticket, 0)?;
    step.on.write(&mut block, &[1.0])?;
    Ok(())
}
