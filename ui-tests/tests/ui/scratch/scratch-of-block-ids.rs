//! row: g
//! error: E0277
//! says: `BlockId<GlobalKv<f32>>` is not an element that has a size of its own
//! Scratch full of whatever was there, taken for block ids.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    #[cfg(crime)]
    let _ids = step.scratch.take::<KvId>(32)?;
    #[cfg(not(crime))]
    let _ids = step.scratch.take::<u32>(32)?;
    Ok(())
}
