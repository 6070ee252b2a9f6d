//! row: i
//! error: E0277
//! says: storage cannot be carved in phase `Serving<Llama>`
//! Allocating after serving has started.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, _stream) = planning();
    #[cfg(crime)]
    let engine = {
        drop(engine);
        serving().0
    };
    engine.carve(lines)?.serve()?;
    Ok(())
}
