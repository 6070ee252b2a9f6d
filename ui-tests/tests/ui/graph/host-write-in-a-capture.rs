//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Writing tokens while recording: every replay would see the same ones.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        #[cfg(crime)]
        step.on.write(&mut step.buffers.work.tokens, &[1, 2, 3])?;
        forward(step)
    })?;
    let mut step = engine.step(&mut stream)?;
    step.on.write(&mut step.buffers.work.tokens, &[1, 2, 3])?;
    step.replay(graph)?;
    Ok(())
}
