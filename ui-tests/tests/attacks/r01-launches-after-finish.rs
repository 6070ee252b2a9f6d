//! Row r: views leave a step with `mem::take`, the step is finished, and a launch behind its fence writes a block that the
//! fence then vouches for. A step that is over launches nothing.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub work: DecodeWorkspace,
    pub pools: Vec<BlockPool<GlobalKv<f32>>>,
}

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Groups>(GroupsSpec { work: DIMS, pools: vec![POOL] });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Groups>()?;
    let mut ticket = engine.bundle().pools[0].open(Tokens::new(4));
    ticket.extend(Tokens::new(1))?;
    let mut step = engine.step(&mut stream)?;
    let (on, mut pools) = (step.on, std::mem::take(&mut step.buffers.pools));
    let fence = step.finish()?;
    let mut block = pools[0].block_mut(&mut ticket, 0)?;
    assert_eq!(on.write(&mut block, &[1.0; 8]), Err(LaunchError::StepEnded));
    assert_eq!(on.read::<f32>(&block, &mut [0.0; 8]), Err(LaunchError::StepEnded));
    assert_eq!(on.copy::<f32>(&mut block, pools_of_nothing()), Err(LaunchError::StepEnded));
    fence.wait()?;
    Ok(())
}

/// An argument of the right type, to see which check comes first.
fn pools_of_nothing<'a>() -> StableSpan<'a, f32, Eager<Host>> {
    let (engine, stream) = serving();
    let (engine, stream) = (Box::leak(Box::new(engine)), Box::leak(Box::new(stream)));
    let step: Step<'static, Llama, Eager<Host>> = engine.step(stream).unwrap();
    step.buffers.weights.embed
}
