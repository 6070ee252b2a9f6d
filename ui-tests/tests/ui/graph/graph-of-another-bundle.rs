//! row: d
//! error: E0308
//! says: expected `Graph<Llama>`, found `Graph<Llama<Cuda>>`
//! A graph of one bundle replayed over another.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving_cuda();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let foreign = other.record(&mut its_stream, |step| forward_cuda(step))?;
    #[cfg(crime)]
    let graph = foreign;
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    step.replay(graph)?;
    let _ = foreign;
    Ok(())
}
