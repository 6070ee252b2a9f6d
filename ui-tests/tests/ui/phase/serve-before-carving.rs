//! row: p
//! error: E0277
//! says: `Uncarved` is not a bundle
//! Serving a plan whose lines were never carved.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, _stream) = planning();
    #[cfg(not(crime))]
    let engine = engine.carve(lines)?;
    engine.serve()?;
    Ok(())
}
