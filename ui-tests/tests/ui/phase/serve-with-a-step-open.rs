//! row: p
//! error: E0505
//! says: cannot move out of `engine` because it is borrowed
//! Freezing the map in the middle of a forward pass.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = carved();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    let _engine = engine.serve()?;
    step.on.write(&mut step.buffers.work.tokens, &[1])?;
    Ok(())
}
