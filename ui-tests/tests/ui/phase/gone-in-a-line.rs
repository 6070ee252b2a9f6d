//! row: b
//! error: E0308
//! says: expected `Line<LlamaWeights>`, found `Gone`
//! What is left of weights in the place of their line.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    let lines: LlamaLines = LlamaLines {
        #[cfg(crime)]
        weights: kept.weights,
        #[cfg(not(crime))]
        weights: engine.declare(DIMS),
        work: engine.keep(kept.work, &DIMS)?,
        kv: engine.keep(kept.kv, &POOL)?,
        window: engine.keep(kept.window, &POOL)?,
        table: engine.keep(kept.table, &TABLE)?,
        recent: engine.keep(kept.recent, &TABLE)?,
    };
    engine.plan(limits::<Host>())?.carve(lines)?.serve()?;
    Ok(())
}
