//! row: k
//! error: E0277
//! says: `bool` is not an element that has a size of its own
//! Scratch of a type that device memory cannot hold.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(crime)]
    let _flags = step.scratch.take::<bool>(32)?;
    #[cfg(not(crime))]
    let _flags = step.scratch.take::<u8>(32)?;
    Ok(())
}
