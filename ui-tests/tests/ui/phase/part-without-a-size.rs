//! row: q
//! error: E0063
//! says: missing field `window` in initializer
//! A part of the bundle that its specification forgets.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let _lines = engine.declare_bundle::<Llama>(LlamaSpec {
        weights: DIMS,
        work: DIMS,
        kv: POOL,
        #[cfg(not(crime))]
        window: POOL,
        table: TABLE,
        recent: TABLE,
    });
    Ok(())
}
