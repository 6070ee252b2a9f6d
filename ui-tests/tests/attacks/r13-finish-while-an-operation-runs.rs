//! Row r: one thread finishes the step while an operation of another thread is under way, with a view that left the step. The
//! operation was let in before the end, so the end waits for it: the fence must vouch for what it writes.

#![forbid(unsafe_code)]

use memtier::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
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
    let mut step = engine.step::<Groups>(&mut stream)?;
    let (on, mut work) = (step.on, step.buffers.work.take().ok_or("it was declared")?);
    let stage = Arc::new(AtomicU32::new(0));
    let told = stage.clone();
    thread::scope(|scope| -> Result<(), Error> {
        let operation = scope.spawn(move || {
            on.host_op((output::<f32, _, _>(&mut work.hidden),), move |(hidden,)| {
                told.store(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(50));
                hidden.fill(1.0);
                told.store(2, Ordering::SeqCst);
                Ok(())
            })?;
            let after = loop {
                match on.write(&mut work.hidden, &[2.0]) {
                    Ok(()) => thread::yield_now(),
                    Err(error) => break error,
                }
            };
            Ok::<_, LaunchError>(after)
        });
        while stage.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        step.finish()?.wait()?;
        assert_eq!(stage.load(Ordering::SeqCst), 2, "the fence is behind an operation that still writes");
        assert_eq!(operation.join().map_err(|_| "the thread panicked")?, Ok(LaunchError::StepEnded));
        Ok(())
    })
}
