//! Two models in one process, on one device with one budget.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let (one, _stream) = serving_on::<Host>(&device);
    let after_one = device.report().live;
    let (two, _stream) = serving_on::<Host>(&device);
    assert_eq!(device.report().live, after_one.times(2)?);
    // A limit that two models leave no room under: refused here for what the others hold, accepted when they are gone.
    let limits = Limits::new(Host::NAME, after_one.times(2)?.plus(Bytes::kib(4))?);
    let mut three = Engine::open(&device);
    let lines = declare::<Host>(&mut three);
    let refused = three.plan(limits).err().ok_or("the others are not counted")?;
    assert!(matches!(refused.report, PlanError::DoesNotFit(_)), "{refused}");
    drop((one, two));
    refused.engine.plan(limits)?.carve(lines)?;
    Ok(())
}
