//! row: p
//! error: E0277
//! says: an engine in phase `Planning<Llama>` is not serving
//! Admitting a request before weights are there.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = carved();
    #[cfg(not(crime))]
    let engine = engine.serve()?;
    let _ticket = engine.bundle().kv.open(Tokens::new(1));
    Ok(())
}
