//! row: c
//! error: E0515
//! says: cannot return value referencing function parameter `scratch`
//! A span of a nested frame, returned past its end.

use memtier::*;
use ui_tests::*;

pub fn take(mut scratch: ScratchFrame<'_, Eager<Host>>) -> Result<StableSpanMut<'_, f32, Eager<Host>>, ScratchFull> {
    #[cfg(crime)]
    return scratch.nested().take(64);
    #[cfg(not(crime))]
    return scratch.take(64);
}

pub fn main() {}
