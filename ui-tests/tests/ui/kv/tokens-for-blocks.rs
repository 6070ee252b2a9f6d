//! row: s
//! error: E0308
//! says: expected `Blocks`, found `Tokens`
//! A number of tokens where a number of blocks is meant.

use memtier::*;
use ui_tests::*;

pub fn main() {
    #[cfg(crime)]
    let pool = PoolSpec { floor: Tokens::new(64), ..POOL };
    #[cfg(not(crime))]
    let pool = PoolSpec { floor: Tokens::new(64).in_blocks_of(POOL.per_block), ..POOL };
    assert_eq!(pool.floor, Blocks::new(64));
}
