//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Naming a request's blocks while recording: every replay would see that request.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let ticket = ticket(&engine);
    let graph = engine.record(&mut stream, |step| -> Result<(), Error> {
        #[cfg(crime)]
        step.buffers.table.set(step.on, 0, &ticket)?;
        Ok(forward(step)?)
    })?;
    let mut step = engine.step(&mut stream)?;
    step.buffers.table.set(step.on, 0, &ticket)?;
    step.replay(graph)?;
    Ok(())
}
