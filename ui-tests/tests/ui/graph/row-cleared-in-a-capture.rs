//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Clearing a row while recording.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    engine.record(&mut stream, |step| -> Result<(), Error> {
        #[cfg(crime)]
        step.buffers.table.clear(step.on, 0)?;
        Ok(forward(step)?)
    })?;
    let mut step = engine.step(&mut stream)?;
    step.buffers.table.clear(step.on, 0)?;
    Ok(())
}
