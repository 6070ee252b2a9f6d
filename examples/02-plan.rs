//! Declare what will be wanted, plan it, and carve it: priced equals carved, to the byte.

use memtier::{Bytes, Device, Engine, Host, HostBackend, Limits, Space};
use memtier_examples::{Toy, declare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));

    // Loading: nothing is acquired, lines are priced.
    let mut engine = Engine::open(&device);
    let (lines, stream) = declare(&mut engine);
    assert_eq!(device.report().live, Bytes::ZERO);

    // Planning: the plan is accepted, its arenas are open at exactly these sizes.
    let engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?;
    println!("{}\n", engine.memory_plan());

    // Each line is used up by the carve. A line that was never declared, or was carved before, is no line.
    let mut engine = engine.carve(lines)?;
    let stream = engine.open_stream(stream)?;

    let engine = engine.serve::<Toy>()?;
    assert!(engine.unclaimed().is_empty());
    println!("{}", engine.memory_report());
    drop((engine, stream));
    assert_eq!(device.report().live, Bytes::ZERO);
    Ok(())
}
