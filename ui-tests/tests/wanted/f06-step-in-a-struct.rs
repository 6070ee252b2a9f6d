//! A step that is stored in a struct.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

struct Running<'s> {
    step: Step<'s, Llama, Eager<Host>>,
    passes: usize,
}

fn run(running: &mut Running<'_>) -> Result<(), LaunchError> {
    running.passes += 1;
    forward(&mut running.step)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut running = Running { step: engine.step(&mut stream)?, passes: 0 };
    run(&mut running)?;
    run(&mut running)?;
    assert_eq!(running.passes, 2);
    Ok(())
}
