//! Accounting: opening a second device of the same space would leave what survives on the first in nobody's books.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let (engine, _stream) = serving();
    let (engine, kept) = engine.drain()?.end_model();
    let engine = engine.with(&Device::new(HostBackend::new(), Bytes::mib(1))).err().ok_or("replaced the device")?;
    // Another space is another matter.
    let mut engine = engine.with(&device::<Cuda>()).map_err(|_| "no second space")?;
    engine.keep(kept.work, &DIMS)?;
    Ok(())
}
