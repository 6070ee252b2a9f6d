//! row: m
//! error: E0277
//! says: a kernel cannot write `StableSpan<'_, u32, Eager<Host>>`
//! A workspace that both sides read is written by one of them.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn both(
    engine: &mut Engine<Serving<Llama>>,
    prefill: &mut Stream<Host>,
    decode: &mut Stream<Host>,
) -> Result<(), Error> {
    let Overlap { parts, first, mut second } = engine.overlap::<Llama>(prefill, decode)?;
    let work = parts.work.shared();
    let (seen, mut here) = (work.on(&first)?, work.on(&second)?);
    let mut own = second.scratch.take::<u32>(8)?;
    #[cfg(crime)]
    second.on.copy::<u32>(&mut here.tokens, &own)?;
    #[cfg(not(crime))]
    second.on.copy::<u32>(&mut own, here.tokens)?;
    drop((seen, first));
    Ok(())
}

pub fn main() {}
