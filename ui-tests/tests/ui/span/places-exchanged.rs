//! row: n
//! error: E0308
//! says: mismatched types
//! A span of a step taken for one of a capture: its place is part of its type.

use memtier::*;
use ui_tests::*;

pub fn captured<'a, 'b>(
    eager: StableSpan<'a, f32, Eager<Host>>,
    captured: StableSpan<'a, f32, Captured<'b, Host>>,
) -> StableSpan<'a, f32, Captured<'b, Host>> {
    #[cfg(crime)]
    return eager;
    #[cfg(not(crime))]
    return {
        let _ = eager;
        captured
    };
}

pub fn main() {}
