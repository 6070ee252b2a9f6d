//! Account before allocating, and recycle within headroom: a decode loop on a card with 262 MiB left, under three policies.
//!
//! Its tensors are one token longer each step, so what it frees is never asked for again. A bound of 1 GiB is no bound on
//! that card; a bound from what is free holds; planning the buffers once at their largest recycles nothing at all.

use std::{cell::Cell, rc::Rc};

use memtier::{
    Bytes,
    account::{BackendId, ClassPool, DeviceMemory, Node, Placement, Storage, TakeError, decide_budget},
    cache::{AllocCache, Capacity, NoGraphs, Override},
};

/// A card: memory is a number that goes down and up again.
#[derive(Clone)]
struct Card(Rc<Cell<u64>>);

/// A buffer on it.
struct Buffer(Card, Bytes);

impl Card {
    fn with(free: Bytes) -> Self {
        Card(Rc::new(Cell::new(free.count())))
    }

    fn free(&self) -> Option<Bytes> {
        Some(Bytes::new(self.0.get()))
    }

    fn create(&self, size: Bytes) -> Result<Buffer, &'static str> {
        self.0.set(self.0.get().checked_sub(size.count()).ok_or("out of memory")?);
        Ok(Buffer(self.clone(), size))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Buffer(card, size) = self;
        card.0.set(card.0.get() + size.count());
    }
}

/// Ten tensors a step, 12.8 MiB in all, each one token (4 KiB) longer than in the step before.
fn size(step: u64, tensor: u64) -> Bytes {
    Bytes::new((1312 << 10) + (step << 12) - (tensor << 6))
}

/// What a run held after each step, and the step that found no memory.
struct Run {
    held: Vec<Bytes>,
    died: Option<u64>,
    cache: AllocCache<Buffer>,
}

fn recycle(operator: Override, steps: u64) -> Result<Run, &'static str> {
    let card = Card::with(Bytes::mib(262));
    // What else lives: not ours to recycle.
    let _live = card.create(Bytes::mib(13))?;
    let mut run = Run { held: Vec::new(), died: None, cache: AllocCache::new(operator, NoGraphs) };
    drop(run.cache.enable(card.free()));
    for step in 0..steps {
        let sizes = (0..10).map(|tensor| size(step, tensor));
        let tensors: Result<Vec<_>, _> =
            sizes.map(|size| run.cache.take(size).map_or_else(|| card.create(size), Ok)).collect();
        let Ok(tensors) = tensors else {
            run.died = Some(step + 1);
            break;
        };
        for tensor in tensors {
            drop(run.cache.put(tensor.1, tensor));
        }
        for warning in run.cache.end_step(|| card.free()).warnings {
            println!("  step {}: {warning}", step + 1);
        }
        run.held.push(run.cache.stats().held);
    }
    Ok(run)
}

/// The step down the side, what is held to the right, one mark for each 4 MiB.
fn chart(run: &Run) {
    for (step, held) in run.held.iter().enumerate().filter(|(step, _)| step % 3 == 0) {
        let mib = held.count() >> 20;
        println!("  step {:>3} |{:<60}| {mib:>3} MiB", step + 1, "#".repeat((mib / 4) as usize));
    }
    match run.died {
        Some(step) => println!("  step {step:>3} | out of memory\n"),
        None => println!("  {}\n", run.cache.stats()),
    }
}

/// Each tensor planned at its largest: nothing is created or freed while the loop runs.
fn planned(steps: u64) -> Result<(), &'static str> {
    let card = Card::with(Bytes::mib(262));
    let _live = card.create(Bytes::mib(13))?;
    let buffers = (0..10).map(|tensor| card.create(size(steps, tensor))).collect::<Result<Vec<_>, _>>()?;
    let free = card.free();
    for step in 0..steps {
        assert!(buffers.iter().zip(0..).all(|(buffer, tensor)| size(step, tensor) <= buffer.1), "written in place");
    }
    assert_eq!(card.free(), free);
    println!(
        "planned at their largest: {} MiB once, 0 retained, 0 freed, {steps} steps\n",
        262 - 13 - (card.0.get() >> 20)
    );
    Ok(())
}

/// Four nodes of a graph; the third lies in the buffer of the second.
fn graph(gpu: BackendId) -> [Node; 4] {
    let node = |storage, reads: &[usize], output| {
        let reads = reads.to_vec();
        Node { backend: gpu, len: Bytes::kib(100), storage, reads, output }
    };
    [
        node(Storage::Input, &[], false),
        node(Storage::Computed, &[0], false),
        node(Storage::Alias(1), &[1], false),
        node(Storage::Computed, &[2], true),
    ]
}

/// Charged before the card is asked; rebuilt at the same addresses.
fn account() -> Result<(), Box<dyn std::error::Error>> {
    let card = Card::with(Bytes::mib(262));
    let free = DeviceMemory::Reported(Bytes::mib(262));
    let mut pool = ClassPool::new();
    let gpu = pool.add_backend("card", decide_budget(None, &free));
    pool.set_weights(gpu, Bytes::mib(180));
    let nodes = graph(gpu);
    let mut slots = Vec::new();
    for _ in 0..3 {
        let placed = Placement::of(&nodes, &mut pool, |_, class| card.create(class))?;
        slots.push((0..nodes.len()).map(|node| placed.slot(node)).collect::<Vec<_>>());
        placed.release(&mut pool).map_err(|_| "a buffer of another pool")?;
    }
    assert!(slots.windows(2).all(|pair| pair[0] == pair[1]), "the same buffers each time");
    println!("three builds of one graph: {} buffers created", pool.created());
    match pool.take(gpu, Bytes::mib(17), |class| card.create(class)) {
        Err(TakeError::OverBudget(refused)) => println!("{refused}"),
        _ => return Err("a quarter is held back, and 17 MiB are too many".into()),
    }
    println!("{}", pool.report(gpu).ok_or("no report")?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("a bound of 1 GiB, 262 MiB free");
    let constant = recycle(Override::Fixed(Bytes::gib(1)), 60)?;
    chart(&constant);
    assert_eq!((constant.died, constant.cache.stats().freed), (Some(19), Bytes::ZERO));

    println!("a bound from what is free");
    let bounded = recycle(Override::parse(None)?, 60)?;
    chart(&bounded);
    assert_eq!((bounded.died, bounded.cache.stats().capacity), (None, Capacity::Bounded(Bytes::mib(64))));
    assert!(bounded.held.iter().all(|held| *held <= Bytes::mib(64)) && bounded.cache.stats().freed > Bytes::mib(600));

    planned(60)?;
    account()
}
