//! row: h
//! error: E0277
//! says: this cannot be done inside a graph capture or a load
//! Reading results while recording: nothing has run.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        forward(step)?;
        #[cfg(crime)]
        step.on.read(&step.buffers.work.logits, &mut [0.0; 256])?;
        Ok(())
    })?;
    let mut step = engine.step(&mut stream)?;
    step.replay(graph)?;
    step.on.read(&step.buffers.work.logits, &mut [0.0; 256])?;
    Ok(())
}
