//! row: c
//! error: E0507
//! says: cannot move out of `*frame`
//! A second frame that hands out the same memory.

use memtier::*;
use ui_tests::*;

pub fn two<'f>(frame: &'f mut ScratchFrame<'_, Eager<Host>>) -> Result<StableSpanMut<'f, f32, Eager<Host>>, ScratchFull> {
    #[cfg(crime)]
    let mut twin = *frame;
    #[cfg(not(crime))]
    let mut twin = frame.nested();
    twin.take(64)
}

pub fn main() {}
