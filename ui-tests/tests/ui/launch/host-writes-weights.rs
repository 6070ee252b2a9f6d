//! row: k
//! error: E0277
//! says: a kernel cannot write `StableSpan<'_, f32, Eager<Host>>`
//! The host writes weights while serving.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step = engine.step(&mut stream)?;
    #[cfg(crime)]
    step.on.write(&mut step.buffers.weights.embed, &[1.0])?;
    #[cfg(not(crime))]
    step.on.write(&mut step.buffers.work.hidden, &[1.0])?;
    Ok(())
}
