//! Results of one pass are read while the inputs of the next are written: in one step, in stream order.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    let mut logits = [1.0; 256];
    for token in 0..3 {
        step.on.write(&mut step.buffers.work.tokens, &[token; 8])?;
        step.replay(graph)?;
        step.on.read(&step.buffers.work.logits, &mut logits)?;
        assert_eq!(logits, [0.0; 256], "weights are zero");
    }
    step.finish()?.wait()?;
    Ok(())
}
