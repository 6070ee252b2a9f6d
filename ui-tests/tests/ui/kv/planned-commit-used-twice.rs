//! row: j
//! error: E0382
//! says: use of moved value: `commit`
//! Growing twice on what the plan paid for once.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let kv = &engine.bundle().kv;
    let commit = kv.planned_commit().ok_or("the plan paid for two")?;
    kv.grow(commit)?;
    #[cfg(crime)]
    kv.grow(commit)?;
    Ok(())
}
