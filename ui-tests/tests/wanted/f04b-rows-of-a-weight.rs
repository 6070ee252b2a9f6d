//! One expert's slice of a weight.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn expert<'a, P: Place<Space = Host>>(weights: &LlamaWeightsRef<'a, P>, n: usize) -> Option<StableSpan<'a, f32, P>> {
    weights.embed.range(n * 8..(n + 1) * 8)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let LlamaView { weights, work, .. } = &mut step.buffers;
    assert_eq!(expert(weights, 31).map(StableSpan::len), Some(8));
    assert!(expert(weights, 32).is_none());
    host::square(step.on, &mut work.hidden, expert(weights, 3).ok_or("32 experts")?)?;
    Ok(())
}
