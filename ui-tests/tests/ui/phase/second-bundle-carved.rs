//! row: p
//! error: E0277
//! says: storage cannot be carved in phase `Planning<Llama>`
//! A second model's bundle in the same engine.

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Draft {
    pub weights: LlamaWeights,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = declare::<Host>(&mut engine);
    let draft = engine.declare_bundle::<Draft>(DraftSpec { weights: DIMS });
    let engine = engine.plan(limits::<Host>())?.carve(lines)?;
    #[cfg(crime)]
    let engine = engine.carve(draft)?;
    engine.serve::<Llama>()?;
    Ok(())
}
