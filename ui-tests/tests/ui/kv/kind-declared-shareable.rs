//! row: g
//! error: E0117
//! says: only traits defined in the current crate can be implemented
//! Declaring sliding-window blocks shareable from outside.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
impl Shareable for SwaKv<f32> {}

pub fn main() {}
