//! row: k
//! error: E0277
//! says: `Packed<Format>` is not an element that has a size of its own
//! Cutting a tensor whose rows only its format knows.

use memtier::*;
use ui_tests::*;

pub fn first(plain: StableSpan<'_, f32, Eager<Host>>, packed: StableSpan<'_, Packed<Format>, Eager<Host>>) -> Option<usize> {
    #[cfg(crime)]
    return packed.range(0..8).map(StableSpan::len);
    #[cfg(not(crime))]
    return {
        let _ = packed;
        plain.range(0..8).map(StableSpan::len)
    };
}

pub fn main() {}
