//! row: n
//! error: E0277
//! says: cannot implement this trait: memtier closed it
//! Memory that only its author believes in.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Mine;

#[cfg(crime)]
impl Space for Mine {
    const NAME: &'static str = "mine";
}

pub fn main() {
    let Mine = Mine;
}
