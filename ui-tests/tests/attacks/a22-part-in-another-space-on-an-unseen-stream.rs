//! row: l
//! error: E0277
//! says: host memory beside the device's is used by a launch
//! A part in another space, launched over on a stream that its bundle never saw: only copies of the bundle's own stream reach it.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

#[graph_captured]
pub struct Mixed {
    pub work: DecodeWorkspace<Cuda>,
    pub cold: DecodeWorkspace<Host>,
}

fn mixed() -> Result<(Engine<Serving<Mixed>>, Stream<Cuda>), Error> {
    let cpu = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device::<Cuda>()).with(&cpu).map_err(|_| "two devices of one space")?;
    let lines = engine.declare_bundle::<Mixed>(MixedSpec { work: DIMS, cold: DIMS });
    let stream = engine.declare(STREAM);
    let mut engine = engine.plan(limits::<Cuda>())?.carve(lines)?;
    let stream = engine.open_stream(stream)?;
    Ok((engine.serve()?, stream))
}

pub fn main() -> Result<(), Error> {
    let (mut other, mut unseen) = serving();
    let (mut engine, mut stream) = mixed()?;
    let other = other.step(&mut unseen)?;
    let mut step = engine.step(&mut stream)?;
    let MixedView { work, cold } = &mut step.buffers;
    #[cfg(crime)]
    host::add_assign(other.on, &mut cold.hidden, &cold.attn)?;
    #[cfg(not(crime))]
    step.on.copy_across(&mut cold.hidden, work.attn.read())?;
    drop(other);
    Ok(())
}
