//! row: m
//! error: E0499
//! says: cannot borrow `engine` as mutable more than once
//! Two forward passes over the same buffers at a time.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (_other, mut another) = serving();
    let mut one: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(not(crime))]
    let one = one.finish()?;
    #[cfg(crime)]
    let two: Step<'_, Llama, Eager<Host>> = engine.step(&mut another)?;
    #[cfg(not(crime))]
    let two: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    drop((one, two));
    Ok(())
}
