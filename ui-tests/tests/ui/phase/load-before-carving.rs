//! row: f
//! error: E0277
//! says: is not a bundle
//! Uploading weights that have no memory yet.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, stream) = planning();
    #[cfg(not(crime))]
    let engine = engine.carve(lines)?;
    let mut engine = engine;
    let mut stream = engine.open_stream(stream)?;
    let _load = engine.load(&mut stream)?;
    Ok(())
}
