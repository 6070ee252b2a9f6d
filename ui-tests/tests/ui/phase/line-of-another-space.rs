//! row: l
//! error: E0308
//! says: found `Line<DecodeWorkspace<Cuda>>`
//! A line planned in CUDA memory in the place of one in host memory.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    #[cfg(crime)]
    let work: Line<DecodeWorkspace<Cuda>> = engine.declare(DIMS);
    #[cfg(not(crime))]
    let work: Line<DecodeWorkspace> = engine.declare(DIMS);
    let lines = declare::<Host>(&mut engine);
    let _lines: LlamaLines<Host> = LlamaLines { work, ..lines };
}
