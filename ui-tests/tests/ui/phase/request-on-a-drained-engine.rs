//! row: b
//! error: E0277
//! says: a `Drained` engine runs no steps
//! Opening a request between `drain` and `end_model`.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let engine = engine.drain()?;
    #[cfg(not(crime))]
    let engine = engine.resume();
    let _ticket = engine.bundle().kv.open(Tokens::new(1));
    Ok(())
}
