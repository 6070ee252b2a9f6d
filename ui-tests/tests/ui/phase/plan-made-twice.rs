//! row: p
//! error: E0277
//! says: nothing can be declared or planned in phase `Planning`
//! Planning again what is accepted already.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, _stream) = planning();
    #[cfg(crime)]
    let engine = engine.plan(limits::<Host>())?;
    engine.carve(lines)?;
    Ok(())
}
