//! row: n
//! error: E0451
//! says: field `mark` of struct `__private::Cx` is private
//! The right to take spans, made by hand: any storage would give its address for any place.

use memtier::__private::Cx;
use memtier::*;
use ui_tests::*;

pub fn peek(storage: &DecodeWorkspace, cx: &Cx<Eager<Host>>) -> usize {
    #[cfg(crime)]
    let cx = &Cx { ..*cx };
    Storage::view(storage, cx).hidden.len()
}

pub fn main() {}
