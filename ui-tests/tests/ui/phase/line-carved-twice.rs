//! row: q
//! error: E0382
//! says: use of moved value: `lines`
//! One plan line pays for one piece of memory.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, lines, _stream) = planning();
    let (other, others, _stream) = planning();
    let _engine = engine.carve(lines)?;
    #[cfg(crime)]
    let _again = other.carve(lines)?;
    #[cfg(not(crime))]
    let _other = other.carve(others)?;
    Ok(())
}
