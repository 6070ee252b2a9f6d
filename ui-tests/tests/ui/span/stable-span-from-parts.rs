//! row: n
//! error: E0451
//! says: of struct `StableSpan` are private
//! A stable span made of its parts.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let raw: u64 = 4096;
    #[cfg(crime)]
    let _span: StableSpan<'_, f32, Eager<Host>> = StableSpan { raw: todo!(), marker: Default::default() };
    assert_eq!(raw, 4096);
}
