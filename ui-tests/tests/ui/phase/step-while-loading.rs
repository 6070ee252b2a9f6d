//! row: p
//! error: E0277
//! says: an engine in phase `Loading` owns no buffers
//! A forward pass before there is memory.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, mut stream) = serving();
    #[cfg(crime)]
    let engine = {
        drop(engine);
        loading()
    };
    let mut engine = engine;
    let _step: Step<'_, Llama, Eager<Host>> = engine.step(&mut stream)?;
    Ok(())
}
