//! A panic in `record` leaves the engine as it was.

#![forbid(unsafe_code)]

use memtier::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        engine.record(&mut stream, |step| -> Result<(), LaunchError> {
            forward(step)?;
            std::panic::resume_unwind(Box::new("the body gives up"))
        })
    }));
    assert!(panicked.is_err());
    let graph = engine.record(&mut stream, |step| forward(step))?;
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
