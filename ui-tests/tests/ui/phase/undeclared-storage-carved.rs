//! row: q
//! error: E0308
//! says: expected `Line<DecodeWorkspace<_>>`, found `Dims`
//! A size in the place of a line: the memory was never declared to the planner.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let mut engine = loading();
    let work: Line<DecodeWorkspace> = engine.declare(DIMS);
    let lines = declare::<Host>(&mut engine);
    #[cfg(crime)]
    let work = DIMS;
    let _lines = LlamaLines { work, ..lines };
}
