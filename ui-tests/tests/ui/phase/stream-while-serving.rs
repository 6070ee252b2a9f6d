//! row: i
//! error: E0277
//! says: memory cannot be acquired in phase `Serving<Llama>`
//! Opening a stream, which has scratch of its own, while requests run.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, stream) = planning();
    let engine = engine.carve(lines)?;
    #[cfg(crime)]
    let engine = engine.serve()?;
    let mut engine = engine;
    let _stream = engine.open_stream(stream)?;
    Ok(())
}
