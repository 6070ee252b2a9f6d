//! row: s
//! error: E0277
//! says: `Tokens` is calculated with methods, not with operators
//! A sum of two kinds of things, with an operator.

use memtier::*;
use ui_tests::*;

pub fn capacity(tokens: Tokens, blocks: Blocks) -> Result<Tokens, Overflow> {
    #[cfg(crime)]
    return Ok(tokens + blocks);
    #[cfg(not(crime))]
    return tokens.plus(POOL.per_block.times(blocks.count())?);
}

pub fn main() {
    assert_eq!(capacity(Tokens::new(1), Blocks::new(2)), Ok(Tokens::new(3)));
}
