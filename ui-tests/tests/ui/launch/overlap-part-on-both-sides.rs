//! row: m
//! error: E0382
//! says: use of moved value: `parts.work`
//! A part handed to both sides of an overlap: nothing would order what the two write.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn both(
    engine: &mut Engine<Serving<Llama>>,
    prefill: &mut Stream<Host>,
    decode: &mut Stream<Host>,
) -> Result<(), Error> {
    let Overlap { parts, first, second } = engine.overlap(prefill, decode)?;
    let one = parts.work.on(&first)?;
    #[cfg(crime)]
    let other = parts.work.on(&second)?;
    #[cfg(not(crime))]
    let other = parts.kv.on(&second)?;
    drop((one, other));
    Ok(())
}

pub fn main() {}
