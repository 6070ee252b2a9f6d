//! row: q
//! error: E0382
//! says: use of moved value: `kept.work`
//! One surviving workspace as two lines.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    let _line = engine.keep(kept.work, &DIMS)?;
    #[cfg(crime)]
    let _again = engine.keep(kept.work, &DIMS)?;
    Ok(())
}
