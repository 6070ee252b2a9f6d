//! Every acquisition and every commit fails once: a typed error, the books at zero afterwards, nothing half built.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

fn run(device: &Device) -> Result<(), String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let mut engine = Engine::open(device);
    let (lines, stream) = (declare::<Host>(&mut engine), engine.declare::<Stream<Host>>(STREAM));
    let engine = engine.plan(limits::<Host>()).map_err(text)?;
    let mut engine = engine.carve(lines).map_err(text)?;
    let mut stream = engine.open_stream(stream).map_err(text)?;
    let mut engine = engine.serve::<Llama>().map_err(text)?;
    let commit = engine.bundle().kv.planned_commit().ok_or("no commit")?;
    engine.bundle().kv.grow(commit).map_err(text)?;
    let mut step = engine.step(&mut stream).map_err(text)?;
    forward(&mut step).map_err(text)
}

pub fn main() {
    let mut failures = 0;
    for nth in 0..32 {
        let fake = FakeBackend::<Host>::new();
        let device = Device::new(fake.clone(), Bytes::mib(1));
        fake.fail_at(nth);
        failures += u32::from(run(&device).is_err());
        assert_eq!(device.report().live, Bytes::ZERO, "acquisition {nth}");
    }
    assert!(failures >= 5, "{failures}");
}
