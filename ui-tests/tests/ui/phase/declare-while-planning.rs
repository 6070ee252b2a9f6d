//! row: q
//! error: E0277
//! says: nothing can be declared or planned in phase `Planning`
//! One more buffer, after the plan was accepted without it.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    #[cfg(crime)]
    let mut engine = engine.plan(limits::<Host>())?;
    let _line: Line<DecodeWorkspace> = engine.declare(DIMS);
    Ok(())
}
