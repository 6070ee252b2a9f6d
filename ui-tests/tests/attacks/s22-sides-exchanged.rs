//! Rows d, m: parts are handed to the other overlap's sides, spans are launched on the other side, recorders and scratch are exchanged.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn two_streams() -> Result<(Engine<Serving<Llama>>, Stream<Host>, Stream<Host>), Error> {
    let mut engine = Engine::open(&Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1)));
    let lines = declare::<Host>(&mut engine);
    let (one, two) = (engine.declare(STREAM), engine.declare(STREAM));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (one, two) = (engine.open_stream(one)?, engine.open_stream(two)?);
    Ok((engine.serve::<Llama>()?, one, two))
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut one, mut two) = two_streams()?;
    let (mut other, mut three, mut four) = two_streams()?;
    assert!(matches!(engine.overlap::<Llama>(&mut one, &mut four), Err(StepError::ForeignStream)));

    let Overlap { mut parts, mut first, mut second } = engine.overlap::<Llama>(&mut one, &mut two)?;
    let Overlap { parts: mut others, first: mut third, second: fourth } = other.overlap::<Llama>(&mut three, &mut four)?;
    std::mem::swap(&mut parts.work, &mut others.work);
    assert!(matches!(parts.work.on(&first).map(drop), Err(StepError::ForeignStream)));
    assert!(matches!(others.kv.on(&first).map(drop), Err(StepError::ForeignStream)));
    let weights = parts.weights.shared();
    assert!(matches!(weights.on(&fourth).map(drop), Err(StepError::ForeignStream)));

    let wrong = |result| matches!(result, Err(LaunchError::WrongStream { .. }));
    let mut work = others.work.on(&second)?;
    assert!(wrong(first.on.write(&mut work.tokens, &[1])));
    assert!(wrong(host::embed(second.on, &mut work.hidden, weights.on(&first)?.embed, &work.tokens)));
    assert!(wrong(first.on.write(&mut second.scratch.take::<f32>(1)?, &[1.0])));
    // Recorders are references, and can be exchanged: each span still knows its stream, and each side ends its own.
    std::mem::swap(&mut first.on, &mut third.on);
    std::mem::swap(&mut first.scratch, &mut second.scratch);
    assert!(wrong(first.on.write(&mut first.scratch.take::<f32>(1)?, &[1.0])));
    second.on.write(&mut work.tokens, &[1])?;
    let (first, second) = (first.finish()?, second.finish()?);
    assert!(!first.wait()?.covers(&second));
    assert!(second.poll().is_none());
    Ok(())
}
