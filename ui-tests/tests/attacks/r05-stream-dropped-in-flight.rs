//! Row c: a stream is dropped with launches in flight that use its scratch: it waits for them.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let fake = FakeBackend::<Host>::asynchronous();
    let (mut engine, mut stream) = serving_on::<Host>(&Device::new(fake.clone(), Bytes::mib(1)));
    let mut step = engine.step::<Llama>(&mut stream)?;
    let mut scratch = step.scratch.take::<f32>(64)?;
    step.on.write(&mut scratch, &[1.0; 64])?;
    let fence = step.finish()?;
    assert!(fence.poll().is_none());
    drop(stream);
    let released = fake.journal().last().is_some_and(|event| event.op == Op::Release);
    assert!(!released || fence.poll().is_some(), "scratch was released under a launch");
    Ok(())
}
