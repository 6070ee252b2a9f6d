//! Row h: inside `record`, a request takes blocks, and memory is acquired through another engine. The body runs before the
//! device is asked to capture anything, so neither is baked, and both are counted.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let (mut other, _lines, line) = planning_on::<Host>(&device);
    let (mut line, mut opened) = (Some(line), None);
    let mut ticket = engine.bundle().kv.open(Tokens::new(4));
    let before = device.report().acquisitions;
    let graph = engine.record(&mut stream, |step| -> Result<(), Error> {
        ticket.extend(Tokens::new(3))?;
        opened = line.take().map(|line| other.open_stream(line));
        Ok(forward(step)?)
    })?;
    assert_eq!(device.report().acquisitions, before, "a stream opens what the plan has acquired");
    assert!(opened.is_some_and(|opened| opened.is_ok()));
    let taken = engine.bundle().kv.free();
    for _ in 0..2 {
        let mut step = engine.step(&mut stream)?;
        step.replay(graph)?;
        step.finish()?.wait()?;
    }
    assert_eq!((ticket.blocks(), engine.bundle().kv.free()), (Blocks::new(3), taken), "replays take nothing");
    Ok(())
}
