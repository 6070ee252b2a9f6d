//! row: p
//! error: E0277
//! says: storage cannot be carved in phase `Loading`
//! Carving before there is a plan: nobody has checked that it fits.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = declare::<Host>(&mut engine);
    #[cfg(crime)]
    let _engine = engine.carve(lines)?;
    #[cfg(not(crime))]
    let _engine = engine.plan(limits::<Host>())?.carve(lines)?;
    Ok(())
}
