//! row: d
//! error: E0277
//! says: this buffer is not owned by the bundle being captured
//! The same with spans that live for ever.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let other: &'static mut _ = Box::leak(Box::new(serving()));
    let outside: Step<'_, Llama, Eager<Host>> = other.0.step(&mut other.1)?;
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        let LlamaView { weights, work, .. } = &mut step.buffers;
        #[cfg(crime)]
        let weights = outside.buffers.weights;
        host::embed(step.on, &mut work.hidden, weights.embed, &work.tokens)
    })?;
    drop(outside);
    Ok(())
}
