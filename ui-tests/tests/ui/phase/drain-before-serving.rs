//! row: p
//! error: E0277
//! says: an engine in phase `Planning<Llama>` is not serving
//! Draining an engine that never served.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = carved();
    #[cfg(not(crime))]
    let engine = engine.serve()?;
    let _drained = engine.drain()?;
    Ok(())
}
