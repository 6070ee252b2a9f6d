//! A bundle with an array of pools, and an optional one.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Groups {
    pub pools: [BlockPool<GlobalKv<f32>>; 2],
    pub draft: Option<BlockPool<SwaKv<f32>>>,
}

pub fn main() -> Result<(), Error> {
    for draft in [None, Some(POOL)] {
        let mut engine = loading();
        let stream = engine.declare(STREAM);
        let lines = engine.declare_bundle::<Groups>(GroupsSpec { pools: [POOL; 2], draft });
        let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
        let mut stream = engine.open_stream(stream)?;
        let mut engine = engine.serve::<Groups>()?;
        let step = engine.step::<Groups>(&mut stream)?;
        assert_eq!(step.buffers.draft.is_some(), draft.is_some());
    }
    Ok(())
}
