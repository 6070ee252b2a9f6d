//! row: n
//! error: E0308
//! says: found `DeviceSpan<'_, f32>`
//! A view of memory that may move, declared stable again.

use memtier::*;
use ui_tests::*;

pub fn back(span: DeviceSpan<'_, f32>) -> usize {
    #[cfg(crime)]
    let _span = StableSpan::<'_, f32, Eager<Host>>::from(span);
    span.len()
}

pub fn main() {}
