//! row: p
//! error: E0382
//! says: use of moved value: `engine`
//! An engine is in one phase: the old one is gone.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = carved();
    engine.serve()?;
    #[cfg(crime)]
    engine.serve()?;
    Ok(())
}
