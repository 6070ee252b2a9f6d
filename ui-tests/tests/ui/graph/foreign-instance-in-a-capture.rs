//! row: d
//! error: E0277
//! says: this buffer is not owned by the bundle being captured
//! The workspace of another engine baked into a graph.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving();
    let outside: Step<'_, Llama, Eager<Host>> = other.step(&mut its_stream)?;
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        let LlamaView { weights, work, .. } = &mut step.buffers;
        #[cfg(crime)]
        let work = &outside.buffers.work;
        let mut out = step.scratch.take::<f32>(8 * 8)?;
        host::embed(step.on, &mut out, weights.embed, &work.tokens)
    })?;
    drop(outside);
    Ok(())
}
