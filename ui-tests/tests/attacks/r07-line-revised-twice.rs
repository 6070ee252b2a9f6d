//! Row q: a line that was revised to an absurd size can be revised again.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let mut engine = loading();
    let mut line: Line<DecodeWorkspace> = engine.declare(DIMS);
    engine.revise(&mut line, Dims { vocab: usize::MAX, ..DIMS }).map_err(|_| "refused")?;
    let refused = engine.plan(limits::<Host>()).err().ok_or("accepted an absurd size")?;
    assert!(matches!(refused.report, PlanError::Size(SizeError::Overflow { field: "logits" })), "{refused}");
    let mut engine = refused.engine;
    engine.revise(&mut line, DIMS).map_err(|_| "refused")?;
    engine.plan(limits::<Host>())?;
    Ok(())
}
