//! Rows i, a: a pinned buffer that is kept when its engine is gone is still there, and still counted.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let line: Line<Pinned<u32>> = engine.declare(PinnedSpec { len: 1000 });
    let mut engine = engine.plan(limits::<Host>())?;
    let mut pinned = engine.pin(line)?;
    drop(engine);
    pinned.fill(7);
    assert_eq!(pinned.iter().sum::<u32>(), 7000);
    assert!(device.report().live >= Bytes::new(4000));
    drop(pinned);
    assert_eq!(device.report().live, Bytes::ZERO);
    Ok(())
}
