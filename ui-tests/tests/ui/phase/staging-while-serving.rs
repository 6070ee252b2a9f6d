//! row: f
//! error: E0277
//! says: nothing can be loaded in phase `Serving<Llama>`
//! Loading while requests run.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, mut stream) = carved();
    #[cfg(crime)]
    let engine = engine.serve()?;
    let mut engine = engine;
    let _load = engine.load(&mut stream)?;
    Ok(())
}
