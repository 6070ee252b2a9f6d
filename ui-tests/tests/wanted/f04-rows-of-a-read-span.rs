//! A batch smaller than the largest: the first rows of an input.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let LlamaView { work, .. } = &mut step.buffers;
    step.on.write(&mut work.hidden, &[2.0; 64])?;
    let (head, tail) = work.hidden.read().split_at(16).ok_or("64 elements")?;
    assert_eq!((head.len(), tail.len()), (16, 48));
    host::square(step.on, &mut work.attn.range(0..16).ok_or("64 elements")?, head)?;
    let mut values = [0.0; 64];
    step.on.read(&work.attn, &mut values)?;
    assert_eq!((values[15], values[16]), (4.0, 0.0));
    Ok(())
}
