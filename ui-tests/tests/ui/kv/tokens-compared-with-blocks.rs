//! row: s
//! error: E0308
//! says: expected `Tokens`, found `Blocks`
//! A comparison of two kinds of things.

use memtier::*;
use ui_tests::*;

pub fn fits(tokens: Tokens, free: Blocks) -> bool {
    #[cfg(crime)]
    return tokens <= free;
    #[cfg(not(crime))]
    return tokens.in_blocks_of(POOL.per_block) <= free;
}

pub fn main() {
    assert!(fits(Tokens::new(1), Blocks::new(1)));
}
