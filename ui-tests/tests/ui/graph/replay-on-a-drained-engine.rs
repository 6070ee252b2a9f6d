//! row: b
//! error: E0277
//! says: a `Drained` engine runs no steps
//! Replaying between `drain` and `end_model`.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    let drained = engine.drain()?;
    #[cfg(crime)]
    let mut engine = drained;
    #[cfg(not(crime))]
    let mut engine = drained.resume();
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
