//! row: d
//! error: E0596
//! says: cannot borrow
//! Replacing a part under the graphs that baked it.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (one, _kept) = engine.drain()?.end_model();
    let (engine, _stream) = serving();
    #[cfg(crime)]
    let _old = std::mem::replace(&mut engine.bundle().work, _kept.work);
    let _free = engine.bundle().kv.free();
    drop(one);
    Ok(())
}
