//! Panics in the body of an operation, in a replay, in a capture and while a step is open: the engine goes on.

#![forbid(unsafe_code)]

use memtier::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use ui_tests::*;

fn explode<P: Place<Space = Host>>(_: &Recorder<P>) -> Result<(), LaunchError> {
    resume_unwind(Box::new("bang"))
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let bomb = engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| {
        step.on.host_op((output::<f32, _, _>(&mut step.buffers.work.hidden),), |_| resume_unwind(Box::new("bang")))
    })?;
    let mut panics = 0;
    let mut catch = |work: &mut dyn FnMut()| panics += u32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
    catch(&mut || drop(engine.step(&mut stream).map(|mut step| step.replay(bomb))));
    catch(&mut || {
        let mut step = engine.step::<Llama>(&mut stream).expect("a step");
        step.on.write(&mut step.buffers.work.tokens, &[1]).expect("a write");
        explode(step.on).expect("never");
    });
    catch(&mut || drop(engine.record(&mut stream, |step: &mut Step<'_, Llama, _>| explode(step.on))));
    assert_eq!(panics, 3);
    engine.forget(bomb)?;
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    step.replay(graph)?;
    forward(&mut step)?;
    step.finish()?.wait()?;
    engine.drain()?.end_model();
    Ok(())
}
