//! row: q
//! error: E0277
//! says: is not what a bundle is carved from
//! The line of a stream among those of the bundle.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, stream) = planning();
    #[cfg(crime)]
    let _engine = engine.carve((lines, stream))?;
    #[cfg(not(crime))]
    let _stream = engine.carve(lines)?.open_stream(stream)?;
    Ok(())
}
