//! row: b
//! error: E0277
//! says: a model cannot end in phase `Serving<Llama>`
//! Ending a model while requests may hold blocks and launches may be in flight.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    #[cfg(not(crime))]
    let engine = engine.drain()?;
    let (_engine, _kept) = engine.end_model();
    Ok(())
}
