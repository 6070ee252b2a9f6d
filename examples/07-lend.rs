//! A prompt path that borrows the end of an expert cache: planned, opened, touched, lent, refilled, and nothing stale.
//!
//! The sizes are those of a real card and a real model, a thousand times smaller: one byte stands for one KiB.

use memtier::experts::{Contract, ExpertCache};
use memtier::plan::loan::{Accepted, AfterTouch, Chunk, Costs, Mode, Opened, Policy, Room, Use, after_touch, choose};
use memtier::{
    Bytes, Device, Engine, Host, HostBackend, LaunchError, Limits, Space, Step, StreamSpec, Tokens, graph_captured,
    tier,
};

/// An expert, and so a slot: 1,728 KiB, here bytes.
const SLOT: u64 = 1728;
/// Its elements.
const EXPERT: usize = SLOT as usize / 4;

struct Dims {
    slots: usize,
    expert: usize,
}

#[tier(EnginePersistent, dims = Dims)]
struct Slots {
    #[shape(slots, expert)]
    experts: u32,
}

#[graph_captured]
struct Moe {
    cache: Slots,
}

const fn mib(count: u64) -> Bytes {
    Bytes::new(count << 10)
}

fn tail(_slots: u64, lent: u64) -> Bytes {
    Bytes::new(lent * SLOT)
}

/// What is on disk: every element of an expert says whose it is.
fn weights(expert: u64) -> [u32; EXPERT] {
    std::array::from_fn(|at| ((expert as u32) << 10) | at as u32)
}

fn room(free: u64, borrow: bool) -> Room {
    Room { free: mib(free), after: mib(700), slots: None, least_slots: 1, borrow }
}

fn said(accepted: &Accepted) -> String {
    let chunk = accepted.chunk.count();
    match accepted.mode {
        Mode::Borrowed { slots, bytes, .. } => format!("{chunk}-token chunk in {slots} borrowed slots ({bytes})"),
        Mode::Owned { bytes, .. } => format!("{chunk}-token chunk in {bytes} of its own"),
    }
}

/// The cache in real memory: opened, touched, filled; then two prompts borrow its end.
fn serve(slots: u64, accepted: Accepted) -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new(HostBackend::new(), Bytes::mib(16));
    let mut engine = Engine::open(&device);
    let lines = engine.declare_bundle::<Moe>(MoeSpec { cache: Dims { slots: slots as usize, expert: EXPERT } });
    let stream = engine.declare(StreamSpec { scratch: Bytes::kib(4) });
    let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::mib(16)))?.carve(lines)?;
    let mut stream = engine.open_stream(stream)?;
    let mut engine = engine.serve::<Moe>()?;
    let mut cache = ExpertCache::new(slots as u32, EXPERT, accepted, Contract::Strict);

    let mut step = engine.step(&mut stream)?;
    let Step { buffers: MoeView { cache: SlotsMut { experts, .. } }, on, .. } = &mut step;
    let on = *on;
    (0..slots).try_for_each(|slot| cache.load(on, experts, slot, (slot, &weights(slot))))?;
    for prompt in 1..=2 {
        // More than was accepted is refused before anything is touched.
        let used = Use { chunk: accepted.chunk, mode: accepted.mode };
        let more = Use { chunk: Tokens::new(used.chunk.count() + 1), ..used };
        println!("  prompt {prompt}: {}", cache.lend(&more).err().ok_or("a longer chunk was lent")?);
        let loan = cache.lend(&used)?;
        let mut buffer = cache.lent(&loan, experts).ok_or("not this cache's loan")?;
        let activations = vec![0xAAAA_AAAA; buffer.len()];
        on.write(&mut buffer, &activations)?;
        assert!(cache.find(experts.read(), slots - 1).is_none(), "the prompt's bytes are nobody's weights");
        let marked = loan.evicted().len();
        let mut restored = 0;
        let refilled = cache.refill::<_, _, LaunchError>(on, experts, loan, |expert, write| {
            restored += 1;
            write(&weights(expert))
        });
        refilled.map_err(|(error, _)| error)?;
        let mut read = [0; EXPERT];
        for expert in 0..slots {
            on.read::<u32>(cache.find(experts.read(), expert).ok_or("an expert is gone")?, &mut read)?;
            assert_eq!(read, weights(expert));
        }
        println!("  prompt {prompt}: the loan marks {marked} experts, the refill restores {restored}, none is stale");
    }
    step.finish()?.wait()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::default();

    // 32K of context: 8192 tokens take what 2489 slots have, of a cache of 5578.
    let price = |chunk: Tokens, _| Bytes::new(2489 * SLOT - 8192 * 400 + chunk.count() * 400);
    let costs = Costs { prompt: &price, tail: &tail, rings: &[384] };
    let (ask, there) = (Chunk::Auto { ceiling: Tokens::new(8192) }, room(9413 + 700, true));
    let plan = choose(&policy, &costs, &there, ask)?;
    println!("32K: a cache of {} slots, {}", plan.slots, said(&plan.accepted));
    // The driver is asked again once the cache is open and written: first all is there, then 3000 MiB are not.
    let mut opened = Opened { slots: plan.slots, free: mib(700), shrinks: 0 };
    if let AfterTouch::Accept(accepted) = after_touch(&policy, &costs, &there, ask, &plan, opened) {
        serve(opened.slots, accepted)?;
    }
    let mut missing = mib(3000);
    let accepted = loop {
        opened.free = Bytes::new(mib(700).count() + SLOT * (plan.slots - opened.slots)).beyond(missing);
        match after_touch(&policy, &costs, &there, ask, &plan, opened) {
            AfterTouch::Accept(accepted) => break accepted,
            AfterTouch::Shrink { slots } => {
                println!("  3000 MiB are missing after the touch: shrunk to {slots} slots");
                opened = Opened { slots, shrinks: opened.shrinks + 1, ..opened };
                missing = mib(3000);
            }
            AfterTouch::Refuse { short } => return Err(format!("short by {short}").into()),
        }
    };
    println!("  accepted: {}", said(&accepted));
    serve(opened.slots, accepted)?;

    // 524K: the chunk that was asked for cannot be had; it is cut on the grid, and owned.
    let price = |chunk: Tokens, _| Bytes::new((300 << 10) + 64 * 2700 + chunk.count() * 500);
    let costs = Costs { prompt: &price, tail: &tail, rings: &[64] };
    let ask = Chunk::Fixed(Tokens::new(24_576));
    let plan = choose(&policy, &costs, &room(700 + 300 + 169 + 17_664 * 500 / 1024 + 2, false), ask)?;
    println!("524K: {}", said(&plan.accepted));

    // The same without resident KV.
    let price = |chunk: Tokens, _| Bytes::new(chunk.count() * (397 << 10) / 2048);
    let costs = Costs { prompt: &price, tail: &tail, rings: &[] };
    let plan = choose(&policy, &costs, &room(700 + 420, false), ask)?;
    println!("524K, KV streamed: {}", said(&plan.accepted));

    // A cache of 100 slots lends nothing, and 768 tokens are what fits beside it. They stay 768, whatever is free later.
    let price = |chunk: Tokens, _| Bytes::new(chunk.count() << 10);
    let costs = Costs { prompt: &price, tail: &tail, rings: &[] };
    let there = Room { slots: Some(100), ..room(700 + 169 + 800, true) };
    let ask = Chunk::Auto { ceiling: Tokens::new(32_768) };
    let plan = choose(&policy, &costs, &there, ask)?;
    let opened = Opened { slots: 100, free: mib(5000), shrinks: 0 };
    let AfterTouch::Accept(accepted) = after_touch(&policy, &costs, &there, ask, &plan, opened) else {
        return Err("a cache that fits was not accepted".into());
    };
    println!("forced: {}", said(&accepted));
    let more = Use { chunk: Tokens::new(1024), mode: Mode::Owned { bytes: mib(1024), ring: 0 } };
    println!("  {}", accepted.check(&more).err().ok_or("it grew")?);
    Ok(())
}
