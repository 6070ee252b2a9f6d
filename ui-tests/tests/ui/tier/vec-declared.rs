//! row: q
//! error: E0277
//! says: is neither a storage nor another part of a bundle
//! Ordinary host memory declared as device memory.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    #[cfg(crime)]
    let _line: Line<Box<[f32]>> = engine.declare(DIMS);
    #[cfg(not(crime))]
    let _line: Line<DecodeWorkspace> = engine.declare(DIMS);
}
