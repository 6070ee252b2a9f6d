//! row: p
//! error: E0277
//! says: a model cannot end in phase `Planning<Llama>`
//! Resuming what was never drained.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = carved();
    #[cfg(not(crime))]
    let engine = engine.serve()?.drain()?;
    let _engine = engine.resume();
    Ok(())
}
