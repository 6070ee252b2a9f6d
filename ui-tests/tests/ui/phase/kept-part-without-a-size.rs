//! row: q
//! error: E0061
//! says: this method takes 2 arguments but 1 argument was supplied
//! Keeping a part without saying what the next model wants: an old shape would be found by the first launch.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    #[cfg(crime)]
    let _line = engine.keep(kept.work)?;
    #[cfg(not(crime))]
    let _line = engine.keep(kept.work, &DIMS)?;
    Ok(())
}
