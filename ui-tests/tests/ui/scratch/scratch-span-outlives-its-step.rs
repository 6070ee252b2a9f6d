//! row: c
//! error: E0499
//! says: cannot borrow `engine` as mutable more than once
//! Scratch of one forward pass in the next one.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let kept = step.scratch.take::<f32>(64)?;
    let on = step.on;
    drop(step);
    #[cfg(crime)]
    let _next: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let _ = on.read(&kept, &mut [0.0; 8]);
    Ok(())
}
