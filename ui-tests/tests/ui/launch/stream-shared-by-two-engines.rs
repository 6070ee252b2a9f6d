//! row: m
//! error: E0499
//! says: cannot borrow `stream` as mutable more than once
//! Two steps at a time on one stream.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let (mut other, mut its_stream) = serving();
    let one: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(crime)]
    let two: Step<'_, Llama, Eager<Host>> = other.step(&mut stream)?;
    #[cfg(not(crime))]
    let two: Step<'_, Llama, Eager<Host>> = other.step(&mut its_stream)?;
    drop((one, two));
    Ok(())
}
