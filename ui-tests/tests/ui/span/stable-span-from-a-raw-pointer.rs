//! row: n
//! error: E0308
//! says: found `*const f32`
//! An address that somebody remembers, declared stable.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let address: *const f32 = std::ptr::null();
    #[cfg(crime)]
    let _span = StableSpan::<'_, f32, Eager<Host>>::from(address);
    assert!(address.is_null());
}
