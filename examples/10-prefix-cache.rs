//! Prompts that start alike: the second one finds the first one's blocks, by content, and keeps them with one count.

use memtier::{
    Blocks, Bytes, CacheEvent, Content, Device, Engine, GlobalKv, Host, HostBackend, Limits, PinOwner, PrefixCache,
    PrefixCacheSpec, RootKey, Serving, Settled, Space, Stream, Ticket, Tokens,
};
use memtier_examples::{Toy, declare};

type Failed = Box<dyn std::error::Error>;

/// What stands in for a forward pass: writes the blocks from token `from` on, and proves it.
fn prefill(
    engine: &mut Engine<Serving<Toy>>,
    stream: &mut Stream<Host>,
    request: &mut Ticket<GlobalKv<f32>>,
    tokens: &[u32],
) -> Result<Settled, Failed> {
    let from = request.tokens().count();
    request.extend(Tokens::new(tokens.len() as u64 - from))?;
    let mut step = engine.step(stream)?;
    for index in (from / 4) as usize..tokens.len().div_ceil(4) {
        step.on.write(&mut step.buffers.kv.block_mut(request, index)?, &[tokens[4 * index] as f32; 32])?;
    }
    let fence = step.finish()?;
    request.advance(Tokens::new(tokens.len() as u64 - from), &fence)?;
    Ok(fence.wait()?)
}

fn main() -> Result<(), Failed> {
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
    let spec = PrefixCacheSpec { events: 64, ..PrefixCacheSpec::new(Blocks::new(8)) };
    let cache = PrefixCache::new(&pool, spec)?;
    let root = cache.root(&RootKey::new("toy"))?;

    // The first conversation: a system prompt of two blocks, and a question.
    let first: Vec<u32> = (0..12).collect();
    let mut request = cache.lookup(&Content::new(root, &first))?.open(Tokens::new(16));
    assert!(request.tokens().is_zero(), "a miss");
    let settled = prefill(&mut engine, &mut stream, &mut request, &first)?;
    cache.publish(&mut request, &settled, &Content::new(root, &first))?;
    drop(request);

    // Another question behind the same system prompt.
    let second: Vec<u32> = (0..8).chain(100..105).collect();
    let content = Content::new(root, &second);
    let lease = cache.lookup(&content)?;
    println!("found {} of {} tokens", lease.tokens().count(), second.len());
    // The system prompt stays, whatever else comes, within what its owner was granted.
    cache.set_pin_budget(PinOwner(1), Blocks::new(4))?;
    let pin = cache.pin(PinOwner(1), &lease)?;
    let mut request = lease.open(Tokens::new(16));
    assert_eq!(request.tokens(), Tokens::new(8));
    prefill(&mut engine, &mut stream, &mut request, &second)?;
    drop(request);

    // Nobody runs. Two blocks are pinned; the third of the first conversation goes when somebody needs it.
    println!("{} free, {} reclaimable", pool.free().count(), pool.reclaimable().count());
    let mut large = pool.open(Tokens::new(24));
    large.push(Blocks::new(6))?;
    assert_eq!((pool.available(), cache.lookup(&Content::new(root, &first))?.blocks()), (Blocks::ZERO, Blocks::new(2)));
    drop((large, pin));

    let mut stored = 0;
    let lost = cache.events(|event| match event {
        CacheEvent::Stored { .. } => stored += 1,
        other => println!("{other:?}"),
    });
    assert_eq!((stored, lost), (3, 0));
    Ok(())
}
