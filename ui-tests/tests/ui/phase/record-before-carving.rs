//! row: p
//! error: E0277
//! says: is not a bundle
//! Capturing a graph before its buffers exist.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, stream) = planning();
    #[cfg(not(crime))]
    let engine = engine.carve(lines)?;
    let mut engine = engine;
    let mut stream = engine.open_stream(stream)?;
    let _graph = engine.record(&mut stream, |_| Ok::<(), LaunchError>(()))?;
    Ok(())
}
