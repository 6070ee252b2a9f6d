//! row: b
//! error: E0277
//! says: `Stream<Host>` did not survive the model swap
//! Making a line of a stream: it is no part of a model, and stays open without.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    #[cfg(crime)]
    let _line = engine.keep(stream, &STREAM);
    #[cfg(not(crime))]
    let (_line, _stream) = (engine.keep(kept.work, &DIMS)?, stream);
    Ok(())
}
