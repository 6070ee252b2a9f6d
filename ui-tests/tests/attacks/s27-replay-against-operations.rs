//! Row m: while a replay runs on one thread, another launches over a view that left the step, and the other way round: one of them is
//! refused, and never do two bodies hold the buffer.

#![forbid(unsafe_code)]

use memtier::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub work: Option<DecodeWorkspace>,
}

pub fn main() -> Result<(), Error> {
    let mut engine = Engine::open(&Device::new(HostBackend::new(), Bytes::mib(1)));
    let lines = engine.declare_bundle::<Groups>(GroupsSpec { work: Some(DIMS) });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Groups>()?;
    let (inside, clashes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let body = {
        let (inside, clashes) = (inside.clone(), clashes.clone());
        move |(hidden,): (&mut [f32],)| {
            clashes.fetch_add(u32::from(inside.swap(true, Ordering::SeqCst)), Ordering::SeqCst);
            hidden.fill(1.0);
            thread::yield_now();
            inside.store(false, Ordering::SeqCst);
            Ok(())
        }
    };
    let graph = engine.record(&mut stream, |step| {
        let work = step.buffers.work.as_mut().ok_or(LaunchError::StepEnded)?;
        step.on.host_op((output::<f32, _, _>(&mut work.hidden),), body.clone())
    })?;
    let mut step = engine.step::<Groups>(&mut stream)?;
    let (on, mut work) = (step.on, step.buffers.work.take().ok_or("it was declared")?);
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..2000 {
                let ran = on.host_op((output::<f32, _, _>(&mut work.hidden),), body.clone());
                assert!(matches!(ran, Ok(()) | Err(LaunchError::Nested)));
            }
        });
        for _ in 0..2000 {
            let ran = step.replay(graph);
            assert!(matches!(ran, Ok(()) | Err(ReplayError::Launch(LaunchError::Nested))));
        }
    });
    assert_eq!(clashes.load(Ordering::SeqCst), 0, "two bodies held the buffer");
    step.finish()?.wait()?;
    Ok(())
}
