//! row: g
//! error: E0277
//! says: `SwaKv<f32>` blocks must stay unshared
//! A second referent of a block that is overwritten in place.

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (global, window) = (engine.bundle().kv.acquire()?, engine.bundle().window.acquire()?);
    #[cfg(crime)]
    let _alias = window.share();
    let _alias = global.share();
    let _ = window;
    Ok(())
}
