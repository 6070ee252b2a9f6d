//! A bundle with a list of pools, one for each group of layers.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub work: DecodeWorkspace,
    pub pools: Vec<BlockPool<GlobalKv<f32>>>,
}

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let lines = engine.declare_bundle::<Groups>(GroupsSpec { work: DIMS, pools: vec![POOL; 3] });
    let engine = engine.plan(limits::<Host>())?.carve(lines)?.serve::<Groups>()?;
    assert_eq!(engine.bundle().pools.iter().map(|pool| pool.free().count()).sum::<u64>(), 3 * 64);
    let mut ticket = engine.bundle().pools[2].open(Tokens::new(4));
    ticket.extend(Tokens::new(4))?;
    assert!(engine.drain().is_err());
    Ok(())
}
