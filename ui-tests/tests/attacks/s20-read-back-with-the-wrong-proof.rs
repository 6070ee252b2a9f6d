//! Rows m, r: a read-back is opened with the proof of an earlier step, of another stream, of another engine; or nothing fits into it.
//! It comes back, and nobody has seen what is in it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = declare::<Host>(&mut engine);
    let (one, two) = (engine.declare(STREAM), engine.declare(STREAM));
    let (large, small) = (engine.declare(PinnedSpec { len: 64 }), engine.declare(PinnedSpec { len: 63 }));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let (mut one, mut two) = (engine.open_stream(one)?, engine.open_stream(two)?);
    let (large, small): (Pinned<f32>, Pinned<f32>) = (engine.pin(large)?, engine.pin(small)?);
    let mut engine = engine.serve::<Llama>()?;
    let (mut other, mut other_stream) = serving_late();

    let earlier = engine.step::<Llama>(&mut one)?.finish()?.wait()?;
    let elsewhere = engine.step::<Llama>(&mut two)?.finish()?.wait()?;
    let foreign = other.step::<Llama>(&mut other_stream)?.finish()?.wait()?;
    let mut step = engine.step::<Llama>(&mut one)?;
    step.on.write(&mut step.buffers.work.hidden, &[5.0; 64])?;
    let Err(refused) = step.on.read_back(&step.buffers.work.hidden, small) else { return Err("it is too small".into()) };
    assert!(matches!(refused.error, LaunchError::Shape { .. }) && refused.pinned.len() == 63);
    let mut late = step.on.read_back(&step.buffers.work.hidden, large)?;
    for proof in [&earlier, &elsewhere, &foreign] {
        let Err(InFlight(again)) = late.take(proof) else { return Err("seen in flight".into()) };
        late = again;
    }
    // What is written later in the same step is not what was read.
    step.on.write(&mut step.buffers.work.hidden, &[6.0; 64])?;
    let fence = step.finish()?;
    let pinned = late.take(&fence.wait()?)?;
    assert_eq!(pinned[..], [5.0; 64]);
    Ok(())
}
