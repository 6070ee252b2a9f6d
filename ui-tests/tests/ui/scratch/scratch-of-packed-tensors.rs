//! row: k
//! error: E0277
//! says: `Packed<Format>` is not an element that has a size of its own
//! Scratch for a tensor whose size only its format knows.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(crime)]
    let _tensor = step.scratch.take::<Packed<Format>>(32)?;
    #[cfg(not(crime))]
    let _tensor = step.scratch.take::<u8>(32)?;
    Ok(())
}
