//! A capture's body that is stored first: with its argument annotated, or as a function.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn body(step: &mut Step<'_, Llama, Captured<'_, Host>>) -> Result<(), LaunchError> {
    forward(step)
}

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let stored = |step: &mut Step<'_, Llama, Captured<'_, Host>>| forward(step);
    engine.record(&mut stream, stored)?;
    engine.record(&mut stream, body)?;
    Ok(())
}
