//! row: u
//! error: E0277
//! says: `Bytes` is calculated with methods, not with operators
//! A size that wraps around when a dimension is absurd.

use memtier::*;
use ui_tests::*;

pub fn size(block: Bytes, blocks: u64) -> Result<Bytes, Overflow> {
    #[cfg(crime)]
    return Ok(block * blocks);
    #[cfg(not(crime))]
    return block.times(blocks);
}

pub fn main() {
    assert_eq!(size(Bytes::mib(1), u64::MAX), Err(Overflow));
}
