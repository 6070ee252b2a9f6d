//! Record a graph once, replay it: per-step change goes through stable memory, and the pool grows under the graph.

use memtier::{Bytes, Device, Engine, Host, HostBackend, LaunchError, Limits, Space, Step, Tokens};
use memtier_examples::{Toy, ToyView, declare, read_first, scale, write_first};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let (lines, stream) = declare(&mut engine);
    let limits = Limits { graphs: 1, graph_bytes: Bytes::kib(4), ..Limits::new(Host::NAME, Bytes::mib(1)) };
    let mut engine = engine.plan(limits)?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;

    // The body runs once and writes down. Only the bundle's buffers and the stream's scratch can be baked.
    let graph = engine.record::<Toy, LaunchError, _>(&mut stream, |step| {
        let Step { buffers: ToyView { work, kv, table, .. }, on, scratch, .. } = step;
        let on = *on;
        let mut doubled = scratch.take::<f32>(16)?;
        scale(on, &mut doubled, &work.rows, &work.rows)?;
        write_first(on, &mut kv.slab_mut(), table.ids(), &doubled)?;
        read_first(on, &mut work.out, &kv.slab(), table.ids())
    })?;
    let mut engine = engine.serve::<Toy>()?;

    // Two blocks are there; the request of the second row gets one that is committed now, under the graph.
    let pool = engine.bundle().kv.handle();
    let mut requests = [pool.open(Tokens::new(8)), pool.open(Tokens::new(8))];
    requests[0].extend(Tokens::new(8))?;
    let commit = engine.bundle().kv.planned_commit().ok_or("no planned commit")?;
    println!("grew by {}", engine.bundle().kv.grow(commit)?);
    requests[1].extend(Tokens::new(4))?;

    for round in 1..=3 {
        let mut step = engine.step(&mut stream)?;
        let Step { buffers: ToyView { work, table, .. }, on, .. } = &mut step;
        on.write(&mut work.rows, &[round as f32; 16])?;
        for (row, request) in requests.iter().enumerate() {
            table.set(on, row, request)?;
        }
        step.replay(graph)?;
        let mut out = [0.0; 16];
        step.on.read::<f32>(&step.buffers.work.out, &mut out)?;
        assert_eq!(out, [(round * round) as f32; 16]);
        step.finish()?.wait()?;
    }

    // A graph is a name; the engine owns it, and the plan counts it.
    let full = engine.record::<Toy, LaunchError, _>(&mut stream, |_| Ok(())).err();
    println!("{}", full.ok_or("a second graph was recorded on a plan for one")?);
    engine.forget(graph)?;
    let mut step = engine.step(&mut stream)?;
    println!("{}", step.replay(graph).err().ok_or("a forgotten graph was replayed")?);
    Ok(())
}
