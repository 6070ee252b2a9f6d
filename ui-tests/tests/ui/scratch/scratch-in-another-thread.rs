//! row: c
//! error: E0597
//! says: `engine` does not live long enough
//! Scratch that a thread keeps when the step is over.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    let kept = step.scratch.take::<f32>(64)?;
    #[cfg(crime)]
    std::thread::spawn(move || kept.len());
    #[cfg(not(crime))]
    std::thread::scope(|scope| scope.spawn(move || kept.len()).join().unwrap());
    Ok(())
}
