//! row: d
//! error: E0277
//! says: a span of one step, capture or load is used by a launch of another
//! A launch that runs now, over a span that belongs to the graph.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving();
    let outside: Step<'_, Llama, Eager<Host>> = other.step(&mut its_stream)?;
    engine.record(&mut stream, |step| -> Result<(), LaunchError> {
        let LlamaView { weights, work, .. } = &mut step.buffers;
        #[cfg(crime)]
        host::embed(outside.on, &mut work.hidden, weights.embed, &work.tokens)?;
        #[cfg(not(crime))]
        host::embed(step.on, &mut work.hidden, weights.embed, &work.tokens)?;
        Ok(())
    })?;
    drop(outside);
    Ok(())
}
