//! Rows b, a: a prefix of a model that has ended, or of a pool that is gone, opens requests that get blocks.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let settled = engine.step::<Llama>(&mut stream)?.finish()?.wait()?;
    let mut ticket = engine.bundle().kv.open(Tokens::new(4));
    let prefix = ticket.written(&settled)?.publish();
    let (_loading, kept) = engine.drain()?.end_model();
    assert!(matches!(ticket.extend(Tokens::new(1)), Err(AcquireBlocksError::ModelEnded { .. })));
    let mut again = prefix.open(Tokens::new(4));
    assert!(matches!(again.extend(Tokens::new(1)), Err(AcquireBlocksError::ModelEnded { .. })));
    drop(kept);
    let mut dead = prefix.open(Tokens::new(4));
    assert!(matches!(dead.extend(Tokens::new(2)), Err(AcquireBlocksError::ModelEnded { .. })));
    assert_eq!(dead.blocks(), Blocks::ZERO);
    Ok(())
}
