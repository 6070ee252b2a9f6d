//! row: a
//! error: E0507
//! says: cannot move out of a shared reference
//! A pool that leaves the engine which orders its use.

use memtier::*;
use ui_tests::*;

pub fn main() {
    let (engine, _stream) = serving();
    #[cfg(crime)]
    let pool = { engine.bundle().kv };
    #[cfg(not(crime))]
    let pool = engine.bundle().kv.handle();
    let _free = pool.free();
}
