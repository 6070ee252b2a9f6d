//! row: l
//! error: E0277
//! says: a part in `Host` memory, in a bundle whose first part is in `Cuda` memory
//! A part in another space, whose spans would fit any stream: a bundle is in one space.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[cfg(crime)]
#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub cold: DecodeWorkspace<Host>,
}

#[cfg(not(crime))]
#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub cold: DecodeWorkspace<Cuda>,
}

pub fn main() {
    let _: Option<Mixed> = None;
}
