//! row: s
//! error: E0277
//! says: `Blocks` is calculated with methods, not with operators
//! `needed - held`, which is negative when a request holds more than it needs.

use memtier::*;
use ui_tests::*;

pub fn missing(needed: Blocks, held: Blocks) -> Blocks {
    #[cfg(crime)]
    return needed - held;
    #[cfg(not(crime))]
    return needed.beyond(held);
}

pub fn main() {
    assert_eq!(missing(Blocks::new(4), Blocks::new(5)), Blocks::ZERO);
}
