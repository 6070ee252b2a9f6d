//! row: s
//! error: E0308
//! says: expected `Bytes`, found `Blocks`
//! A sum of two kinds of things.

use memtier::*;
use ui_tests::*;

pub fn total(bytes: Bytes, blocks: Blocks) -> Result<Bytes, Overflow> {
    #[cfg(crime)]
    return bytes.plus(blocks);
    #[cfg(not(crime))]
    return bytes.plus(Bytes::new(32).times(blocks.count())?);
}

pub fn main() -> Result<(), Error> {
    assert_eq!(total(Bytes::new(1), Blocks::new(2))?, Bytes::new(65));
    Ok(())
}
