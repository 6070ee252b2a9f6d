//! row: j
//! error: E0308
//! says: expected `PlannedCommit<GlobalKv<f32>>`, found `Blocks`
//! Growing a pool while serving by as much as seems right.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let kv = &engine.bundle().kv;
    #[cfg(crime)]
    kv.grow(Blocks::new(16))?;
    #[cfg(not(crime))]
    kv.grow(kv.planned_commit().ok_or("the plan paid for two")?)?;
    Ok(())
}
