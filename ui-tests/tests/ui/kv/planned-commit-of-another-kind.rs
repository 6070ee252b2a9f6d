//! row: j
//! error: E0308
//! says: expected `PlannedCommit<GlobalKv<f32>>`, found `PlannedCommit<SwaKv<f32>>`
//! Growth that was planned for the other pool.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let Llama { kv, window, .. } = engine.bundle();
    let commit = window.planned_commit().ok_or("the plan paid for two")?;
    #[cfg(crime)]
    kv.grow(commit)?;
    #[cfg(not(crime))]
    window.grow(commit)?;
    let _ = (kv, window);
    Ok(())
}
