//! Two requests start with the blocks of a third: shared by count, published with proof, never written again.

use memtier::{BlockError, Bytes, Device, Engine, Host, HostBackend, Limits, Space, Step, Tokens};
use memtier_examples::{Toy, ToyView, declare};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(1));
    let mut engine = Engine::open(&device);
    let (lines, stream) = declare(&mut engine);
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(1)))?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Toy>()?;
    while let Some(commit) = engine.bundle().kv.planned_commit() {
        engine.bundle().kv.grow(commit)?;
    }
    let pool = engine.bundle().kv.handle();

    // The first request writes one block of four tokens.
    let mut first = pool.open(Tokens::new(8));
    first.extend(Tokens::new(4))?;
    let mut step = engine.step(&mut stream)?;
    let Step { buffers: ToyView { kv, .. }, on, .. } = &mut step;
    on.write(&mut kv.block_mut(&mut first, 0)?, &[7.0; 32])?;
    let fence = step.finish()?;
    first.advance(Tokens::new(4), &fence)?;

    // Publishing wants proof that the tokens are in memory: a fence behind the launches that wrote them, waited for.
    let settled = fence.wait()?;
    let prefix = first.written(&settled)?.publish();
    println!("published {}", prefix.tokens());

    // The followers start with it, and go on in blocks of their own.
    let (mut one, other) = (prefix.open(Tokens::new(16)), prefix.open(Tokens::new(16)));
    one.extend(Tokens::new(4))?;
    assert_eq!((one.tokens(), one.blocks().count(), other.blocks().count()), (Tokens::new(4), 2, 1));

    // A shared block cannot be written; copy it first.
    let mut step = engine.step(&mut stream)?;
    let Step { buffers: ToyView { kv, .. }, on, .. } = &mut step;
    let refused = kv.block_mut(&mut one, 0).err();
    println!("{}", refused.ok_or("a shared block was handed out for writing")?);
    assert!(matches!(refused, Some(BlockError::Shared { .. })));
    let (from, mut to) = kv.copy_pair((&other, 0), (&mut one, 1))?;
    on.copy::<f32>(&mut to, from)?;
    let mut copied = [0.0; 32];
    on.read(kv.block(&one, 1)?, &mut copied)?;
    assert_eq!(copied, [7.0; 32]);
    step.finish()?.wait()?;

    // The first request ends; its block lives on until the last referent is gone.
    drop(first);
    let held = |engine: &Engine<memtier::Serving<Toy>>| engine.memory_report().pools[0].held.count();
    assert_eq!(held(&engine), 2);
    drop((one, other, prefix));
    assert_eq!(held(&engine), 0);
    Ok(())
}
