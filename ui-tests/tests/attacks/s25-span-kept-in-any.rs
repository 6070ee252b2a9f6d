//! Rows c, d, n: a leaked engine's views are `'static`, so they go into an `Any` and come out after the step, on another thread. They
//! are of the type that they were, and launch nothing.

#![forbid(unsafe_code)]

use memtier::*;
use std::{any::Any, thread};
use ui_tests::*;

type Hidden = StableSpanMut<'static, f32, Eager<Host>>;

pub fn main() -> Result<(), Error> {
    let (engine, stream) = serving();
    let (engine, stream) = (Box::leak(Box::new(engine)), Box::leak(Box::new(stream)));
    let mut step: Step<'static, Llama, Eager<Host>> = engine.step(stream)?;
    let (on, mut hidden) = (step.on, step.scratch.take::<f32>(64)?);
    std::mem::swap(&mut hidden, &mut step.buffers.work.hidden);
    let kept: Box<dyn Any + Send> = Box::new(hidden);
    step.finish()?.wait()?;
    assert!(!kept.is::<StableSpanMut<'static, f32, Eager<Cuda>>>() && !kept.is::<StableSpanMut<'static, u32, Eager<Host>>>());
    assert!(!kept.is::<StableSpanMut<'static, f32, Uploading<Host>>>() && !kept.is::<StableSpan<'static, f32, Eager<Host>>>());
    let after = thread::spawn(move || kept.downcast::<Hidden>().map(|mut hidden| on.write(&mut *hidden, &[1.0])));
    let after = after.join().map_err(|_| "the thread panicked")?;
    assert_eq!(after.ok(), Some(Err(LaunchError::StepEnded)));
    Ok(())
}
