//! row: b
//! error: E0277
//! says: an engine in phase `Serving<Drained<Llama>>` is not serving
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
