//! row: k
//! error: E0308
//! says: expected `u32`, found floating-point number
//! Host values of another element than the buffer's.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.on.write(&mut step.buffers.work.tokens, &[1.0])?;
    #[cfg(not(crime))]
    step.on.write(&mut step.buffers.work.tokens, &[1])?;
    Ok(())
}
