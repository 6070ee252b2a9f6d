//! row: q
//! error: E0063
//! says: missing field `kv` in initializer
//! A part that nobody declared.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines: LlamaLines = LlamaLines {
        weights: engine.declare(DIMS),
        work: engine.declare(DIMS),
        #[cfg(not(crime))]
        kv: engine.declare(POOL),
        window: engine.declare(POOL),
        table: engine.declare(TABLE),
        recent: engine.declare(TABLE),
    };
    engine.plan(limits::<Host>())?.carve(lines)?.serve()?;
    Ok(())
}
