//! Rows a, i: engine and stream are dropped before a read-back and the buffer in it. The drop waits for the copy.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = declare::<Host>(&mut engine);
    let (stream, buffer) = (engine.declare(STREAM), engine.declare(PinnedSpec { len: 64 }));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut stream, pinned): (_, Pinned<f32>) = (engine.open_stream(stream)?, engine.pin(buffer)?);
    let mut engine = engine.serve::<Llama>()?;
    let mut step = engine.step::<Llama>(&mut stream)?;
    step.on.write(&mut step.buffers.work.hidden, &[5.0; 64])?;
    let late = step.on.read_back(&step.buffers.work.hidden, pinned)?;
    let fence = step.finish()?;
    drop(stream);
    drop(engine);
    let pinned = late.take(&fence.wait()?)?;
    assert_eq!(pinned[..], [5.0; 64]);
    assert!(device.report().live > Bytes::ZERO, "the buffer is counted");
    drop((pinned, fence));
    assert_eq!(device.report().live, Bytes::ZERO);
    Ok(())
}
