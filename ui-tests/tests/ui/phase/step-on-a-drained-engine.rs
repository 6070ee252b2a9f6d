//! row: b
//! error: E0277
//! says: a `Drained` engine runs no steps
//! A forward pass between `drain` and `end_model`: the proof that nothing is in flight would be void.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, mut stream) = serving();
    let engine = engine.drain()?;
    #[cfg(not(crime))]
    let engine = engine.resume();
    let mut engine = engine;
    let _step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    Ok(())
}
