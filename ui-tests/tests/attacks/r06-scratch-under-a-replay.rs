//! Row c: scratch of a step is overwritten by a graph that is replayed in the same step, since both start at the stack's base.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    let mut mine = step.scratch.take::<f32>(64)?;
    step.on.write(&mut mine, &[1.0; 64])?;
    assert_eq!(step.replay(graph), Err(ReplayError::ScratchInUse));
    let mut back = [0.0; 64];
    step.on.read::<f32>(&mine, &mut back)?;
    assert_eq!(back, [1.0; 64]);
    // A nested frame that is gone is no obstacle, and frames of another stream do not help.
    drop(step);
    let (mut other, mut its_stream) = serving();
    let mut step = engine.step(&mut stream)?;
    step.scratch.nested().take::<f32>(64)?;
    step.replay(graph)?;
    let mut elsewhere: Step<'_, Llama, Eager<Host>> = other.step(&mut its_stream)?;
    let _taken = step.scratch.take::<f32>(64)?;
    std::mem::swap(&mut step.scratch, &mut elsewhere.scratch);
    assert_eq!(step.replay(graph), Err(ReplayError::ScratchInUse));
    Ok(())
}
