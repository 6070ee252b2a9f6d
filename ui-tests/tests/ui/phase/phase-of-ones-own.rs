//! row: p
//! error: E0277
//! says: cannot implement this trait: memtier closed it
//! A fourth phase.

use memtier::*;
use ui_tests::*;

pub struct Warming;

#[cfg(crime)]
impl Phase for Warming {
    const NAME: PhaseName = PhaseName::Serving;
}

pub fn main() {
    let Warming = Warming;
}
