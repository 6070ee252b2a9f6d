//! row: j
//! error: E0451
//! says: of struct `PlannedCommit` are private
//! Growth that no plan paid for.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let kv = &engine.bundle().kv;
    let commit = kv.planned_commit().ok_or("the plan paid for two")?;
    #[cfg(crime)]
    let commit = PlannedCommit { pool: 1, ..commit };
    kv.grow(commit)?;
    Ok(())
}
