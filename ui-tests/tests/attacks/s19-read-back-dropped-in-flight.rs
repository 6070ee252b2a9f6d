//! Rows i, r: a read-back is dropped, or leaked, while the copy is in flight: its memory stays until the copy is done, and no longer.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let fake = FakeBackend::<Host>::asynchronous();
    let device = Device::new(fake.clone(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = declare::<Host>(&mut engine);
    let stream = engine.declare(STREAM);
    let buffers: [Line<Pinned<f32>>; 2] = [(); 2].map(|()| engine.declare(PinnedSpec { len: 64 }));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let [dropped, leaked] = buffers.map(|line| engine.pin(line));
    let (dropped, leaked) = (dropped?, leaked?);
    let mut engine = engine.serve::<Llama>()?;
    let released = || fake.journal().iter().filter(|event| event.op == Op::Release).count();

    let step = engine.step::<Llama>(&mut stream)?;
    drop(step.on.read_back(&step.buffers.work.hidden, dropped)?);
    std::mem::forget(step.on.read_back(&step.buffers.work.attn, leaked)?);
    let fence = step.finish()?;
    assert_eq!(released(), 0, "its copy is in flight");
    engine.step::<Llama>(&mut stream)?.finish()?;
    assert_eq!(released(), 0, "it still is");
    fence.wait()?;
    engine.step::<Llama>(&mut stream)?.finish()?;
    assert_eq!(released(), 1, "the dropped one; the leaked one stays");
    Ok(())
}
