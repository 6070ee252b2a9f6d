//! Row d: a slot is used again after `forget`: old names stay stale.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (mut engine, mut stream) = serving();
    let mut names = Vec::new();
    for _ in 0..5 {
        let graph = engine.record(&mut stream, |step| forward(step))?;
        engine.forget(graph)?;
        engine.forget(graph)?;
        names.push(graph);
    }
    let live = engine.record(&mut stream, |step| forward(step))?;
    let mut step = engine.step(&mut stream)?;
    for name in &names {
        assert_eq!(step.replay(*name), Err(ReplayError::StaleGraph));
    }
    step.replay(live)?;
    drop(step);
    for name in names {
        engine.forget(name)?;
    }
    engine.step(&mut stream)?.replay(live)?;
    Ok(())
}
