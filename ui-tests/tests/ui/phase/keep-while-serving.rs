//! row: i
//! error: E0277
//! says: nothing can be declared or planned in phase `Serving<Llama>`
//! Adding a kept part to a map that is frozen.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (engine, kept) = engine.drain()?.end_model();
    #[cfg(crime)]
    let engine = {
        drop(engine);
        serving().0
    };
    let mut engine = engine;
    let _line = engine.keep(kept.work, &DIMS)?;
    Ok(())
}
