//! row: macros
//! error: macro
//! says: no `PartialEq` here
//! Device memory compared by the host.

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[tier(ModelResident, dims = Dims)]
#[derive(Debug, PartialEq)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

#[cfg(not(crime))]
#[tier(ModelResident, dims = Dims)]
#[derive(Debug)]
pub struct Made {
    #[shape(hidden)]
    pub query: f32,
}

pub fn main() {
    let _: Option<Made> = None;
}
