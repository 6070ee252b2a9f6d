//! Load, serve, end the model, load the next one: what survives a swap follows from the tier.

use memtier::{Bytes, Device, Engine, Host, HostBackend, Limits, Space, Step, Tokens};
use memtier_examples::{DIMS, Toy, ToyLines, ToyLoadView, ToyView, declare, scale, spec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let (lines, stream) = declare(&mut engine);
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;

    // Weights are written through staging, which cannot outlive the load.
    {
        let memtier::Load { buffers: ToyLoadView { mut weights, .. }, on, staging, .. } = engine.load(&mut stream)?;
        let mut tensor = staging.take::<f32>(weights.scale.len())?;
        tensor.fill(3.0);
        tensor.upload(on, &mut weights.scale)?;
    }
    let mut engine = engine.serve::<Toy>()?;

    // A request holds blocks through its ticket; dropping the ticket, in any way, gives them back.
    let mut ticket = engine.bundle().kv.open(Tokens::new(8));
    ticket.extend(Tokens::new(5))?;
    assert_eq!(ticket.blocks().count(), 2);

    // A step borrows every buffer: outputs are `&mut`, inputs are `&`, so a launch cannot alias them.
    let mut step = engine.step(&mut stream)?;
    let Step { buffers: ToyView { weights, work, .. }, on, .. } = &mut step;
    let on = *on;
    on.write(&mut work.rows, &[1.0; 16])?;
    scale(on, &mut work.out, &work.rows, weights.scale)?;
    let mut out = [0.0; 16];
    on.read::<f32>(&work.out, &mut out)?;
    assert_eq!(out, [3.0; 16]);
    step.finish()?.wait()?;

    // A model cannot end under its requests.
    let busy = engine.drain().err().ok_or("drained with a request on")?;
    println!("{busy}");
    let engine = busy.engine;
    drop(ticket);

    // The next model: weights are declared again, workspace and pool stay where they are.
    let (mut engine, kept) = engine.drain()?.end_model();
    let sizes = spec();
    let lines = ToyLines {
        weights: engine.declare(DIMS),
        work: engine.keep(kept.work, &sizes.work)?,
        kv: engine.keep(kept.kv, &sizes.kv)?,
        table: engine.keep(kept.table, &sizes.table)?,
    };
    let engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?.serve::<Toy>()?;
    println!("{}", engine.memory_report());
    assert_eq!(device.report().acquisitions[2], 0, "nothing was acquired while serving");
    Ok(())
}
