//! A workspace of the old model's dims for a model with other ones: found when it is kept, not by a launch.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (mut engine, kept) = engine.drain()?.end_model();
    let failed = engine.keep(kept.work, &Dims { vocab: 64, ..DIMS }).err().ok_or("kept a workspace of another shape")?;
    assert_eq!(failed.cause, KeepCause::OtherShape { name: "DecodeWorkspace" });
    // It comes back, and is good for what it was.
    engine.keep(failed.part, &DIMS)?;
    let more = PoolSpec { block_elements: 16, ..POOL };
    assert!(engine.keep(kept.kv, &more).is_err());
    Ok(())
}
