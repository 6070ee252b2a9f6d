//! row: q
//! error: E0451
//! says: of struct `Line` are private
//! A line that nobody planned.

use memtier::*;
use ui_tests::*;

pub fn forged(line: Line<LlamaWeights>) -> Line<LlamaWeights> {
    #[cfg(crime)]
    let line = Line { plan: 1, ..line };
    line
}

pub fn main() {
    forged(loading().declare(DIMS));
}
