//! row: m
//! error: E0499
//! says: cannot borrow `*engine` as mutable more than once at a time
//! A step is opened while views of an overlap are in use.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn both(engine: &mut Engine<Serving<Llama>>, streams: &mut [Stream<Host>; 3]) -> Result<(), Error> {
    let [prefill, decode, third] = streams;
    let Overlap { parts, first, second } = engine.overlap::<Llama>(prefill, decode)?;
    let mut work = parts.work.on(&first)?;
    #[cfg(crime)]
    let step = engine.step::<Llama>(third)?;
    first.on.write(&mut work.tokens, &[1])?;
    drop((first, second));
    #[cfg(not(crime))]
    let step = engine.step::<Llama>(third)?;
    Ok(())
}

pub fn main() {}
