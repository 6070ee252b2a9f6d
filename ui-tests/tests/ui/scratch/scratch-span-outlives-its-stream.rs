//! row: c
//! error: E0505
//! says: cannot move out of `stream` because it is borrowed
//! Scratch of a stream that is gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let kept = step.scratch.take::<f32>(64)?;
    #[cfg(crime)]
    drop(stream);
    step.on.read(&kept, &mut [0.0; 8])?;
    Ok(())
}
