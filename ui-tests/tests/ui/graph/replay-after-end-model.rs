//! row: b
//! error: E0277
//! says: an engine in phase `Loading` owns no buffers
//! Replaying a graph whose model has ended.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let graph = engine.record(&mut stream, |step| forward(step))?;
    #[cfg(crime)]
    let (mut engine, _kept) = engine.drain()?.end_model();
    engine.step(&mut stream)?.replay(graph)?;
    Ok(())
}
