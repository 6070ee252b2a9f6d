//! Results of step n are looked at while step n + 1 replays: two pinned buffers by turns, each bound to the fence of its step.

#![forbid(unsafe_code)]

use memtier::*;
use ui_tests::*;

pub fn main() -> Result<(), Error> {
    let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let lines = declare::<Host>(&mut engine);
    let stream = engine.declare(STREAM);
    let buffers: [Line<Pinned<f32>>; 2] = [(); 2].map(|()| engine.declare(PinnedSpec { len: 64 }));
    let mut engine = engine.plan(limits::<Host>())?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut free: Vec<Pinned<f32>> = buffers.map(|line| engine.pin(line)).into_iter().collect::<Result<_, _>>()?;
    let mut engine = engine.serve::<Llama>()?;
    let graph = engine.record(&mut stream, |step| {
        let work = &mut step.buffers.work;
        host::add_assign(step.on, &mut work.hidden, &work.attn)
    })?;
    {
        let step = engine.step::<Llama>(&mut stream)?;
        let mut work = step.buffers.work;
        step.on.write(&mut work.hidden, &[0.0; 64])?;
        step.on.write(&mut work.attn, &[1.0; 64])?;
    }

    let mut before: Option<(Fence, ReadBack<f32>)> = None;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut step = engine.step::<Llama>(&mut stream)?;
        step.replay(graph)?;
        let late = step.on.read_back(&step.buffers.work.hidden, free.pop().ok_or("both are in flight")?)?;
        // This step is launched; what the one before it said is looked at meanwhile.
        if let Some((fence, late)) = before.take() {
            let pinned = late.take(&fence.wait()?)?;
            seen.push(pinned[63]);
            free.push(pinned);
        }
        before = Some((step.finish()?, late));
    }
    let (fence, late) = before.ok_or("four steps were made")?;
    assert!(fence.poll().is_none(), "the last one is in flight");
    seen.push(late.take(&fence.wait()?)?[63]);
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}
