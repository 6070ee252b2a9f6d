//! row: n
//! error: E0277
//! says: cannot implement this trait: memtier closed it
//! An element whose bytes may be no value: device memory starts out with whatever was there.

use memtier::*;
use ui_tests::*;

#[derive(Clone, Copy)]
pub struct Flag;

#[cfg(crime)]
impl Element for Flag {
    type Repr = bool;
    type Meta = ();
    const NAME: &'static str = "flag";
    const PER: usize = 1;
}

pub fn main() {
    let Flag = Flag;
}
