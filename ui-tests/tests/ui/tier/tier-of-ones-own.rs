//! row: e
//! error: E0277
//! says: the trait bound `Mine: Tier` is not satisfied
//! A tier whose rules nobody has checked: tiers are closed.

use memtier::*;
use ui_tests::*;

pub struct Mine;

#[cfg(crime)]
impl OutlivesModel for Mine {}

pub fn main() {
    let Mine = Mine;
}
