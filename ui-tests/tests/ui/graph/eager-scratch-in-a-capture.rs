//! row: d
//! error: E0277
//! says: this buffer is not owned by the bundle being captured
//! Scratch of a forward pass baked into a graph.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving();
    let mut outside: Step<'_, Llama, Eager<Host>> = other.step(&mut its_stream)?;
    let mut scratch = outside.scratch.take::<f32>(64)?;
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        #[cfg(not(crime))]
        let mut scratch = step.scratch.take::<f32>(64)?;
        host::add_assign(step.on, &mut scratch, &step.buffers.work.hidden)
    })?;
    outside.on.read(&scratch, &mut [0.0; 8])?;
    Ok(())
}
