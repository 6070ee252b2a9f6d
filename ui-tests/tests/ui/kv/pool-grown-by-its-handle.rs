//! row: j
//! error: E0599
//! says: no method named `grow` found for struct `PoolHandle<K>`
//! Growing a pool from where requests are admitted.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let kv = &engine.bundle().kv;
    let commit = kv.planned_commit().ok_or("the plan paid for two")?;
    #[cfg(crime)]
    kv.handle().grow(commit)?;
    #[cfg(not(crime))]
    kv.grow(commit)?;
    Ok(())
}
