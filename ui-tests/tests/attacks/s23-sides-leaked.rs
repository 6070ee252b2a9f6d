//! Row r: both sides of an overlap are leaked, with launches in flight. Blocks wait for both streams, a later step on a third one waits
//! for them, and views that were kept launch nothing any more.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = Engine::open(&Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1)));
    let lines = declare::<Host>(&mut engine);
    let streams = [(); 3].map(|()| engine.declare(STREAM));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let [one, two, three] = streams.map(|line| engine.open_stream(line));
    let (mut one, mut two, mut three) = (one?, two?, three?);
    let mut engine = engine.serve::<Llama>()?;
    let mut ticket = ticket(&engine);

    let Overlap { parts, first, second } = engine.overlap::<Llama>(&mut one, &mut two)?;
    let (mut kv, mut work) = (parts.kv.on(&second)?, parts.work.on(&first)?);
    second.on.write(&mut kv.block_mut(&mut ticket, 0)?, &[1.0; 8])?;
    first.on.write(&mut work.tokens, &[1; 8])?;
    std::mem::forget((first, second));
    drop(ticket);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(63), "its write is in flight");
    engine.step::<Llama>(&mut three)?.finish()?.wait()?;
    assert_eq!(engine.bundle().kv.free(), Blocks::new(64), "the third stream waited for both");

    let Overlap { parts, first, second } = engine.overlap::<Llama>(&mut one, &mut two)?;
    let (on, mut work) = (first.on, parts.work.on(&first)?);
    let fence = first.finish()?;
    assert_eq!(on.write(&mut work.tokens, &[2; 8]), Err(LaunchError::StepEnded));
    drop(second);
    fence.wait()?;
    engine.drain()?.end_model();
    Ok(())
}
