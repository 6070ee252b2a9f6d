//! row: o
//! error: E0599
//! says: no method named `clone` found
//! The same with a method: sharing is visible, it is called `share`.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let block = engine.bundle().kv.acquire()?;
    #[cfg(crime)]
    let twin = block.clone();
    #[cfg(not(crime))]
    let twin = block.share();
    assert_eq!(twin.referents(), 2);
    Ok(())
}
