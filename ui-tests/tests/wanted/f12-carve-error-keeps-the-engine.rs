//! After a carve that failed, the engine and the lines can be used again.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, _stream) = planning();
    let (_other, foreign, _stream) = planning();
    let failed = engine.carve(foreign).err().ok_or("carved a foreign line")?;
    failed.engine.carve(lines)?.serve()?;
    Ok(())
}
