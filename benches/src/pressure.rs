//! What a serve loop does each step to know the memory's level: no peer, the loop either looks or does not.

use std::{error::Error, hint::black_box, sync::Arc};

use memtier::{
    Bytes, Tokens,
    plan::KvDtype,
    pressure::{DeviceReading, Ladder, LimitLatch, ServeLimits, Watcher},
};

use crate::timing::Bench;

/// A watcher of this machine that knows of one device.
fn watcher() -> Result<Arc<Watcher>, Box<dyn Error>> {
    let watcher = Watcher::this_host();
    watcher.poll_now();
    watcher.feed(0, DeviceReading { free: Bytes::gib(9), budget: Bytes::gib(16), used: Bytes::gib(1) })?;
    Ok(Arc::new(watcher))
}

/// Reading the snapshot: a copy of all of it, a reader that keeps its copy, and the level alone.
pub(crate) fn snapshot() -> Result<Bench, Box<dyn Error>> {
    let (whole, level) = (watcher()?, watcher()?);
    let mut reader = level.reader();
    Ok(Bench::new("memory snapshot, one device")
        .with("kept copy, nothing new", move |n| {
            (0..n).for_each(|_| _ = black_box(black_box(&mut reader).latest().level));
        })
        .with("whole copy", move |n| (0..n).for_each(|_| _ = black_box(black_box(&whole).snapshot())))
        .with("level alone", move |n| (0..n).for_each(|_| _ = black_box(black_box(&level).level()))))
}

/// All that a step does for the policy: look, ask the ladder, latch the limits, give them back.
pub(crate) fn step() -> Result<Bench, Box<dyn Error>> {
    let watcher = watcher()?;
    let mut reader = watcher.reader();
    let ladder = Ladder::default();
    let config = ServeLimits { slots: 8, prefill_window: Tokens::new(4096), kv: KvDtype::F16, evict_cached: false };
    let mut latch = LimitLatch::new(ladder.limits(watcher.level(), &config));
    Ok(Bench::new("memory policy of a step").with("memtier", move |n| {
        for _ in 0..n {
            latch.propose(ladder.limits(black_box(&mut reader).latest().level, black_box(&config)));
            let step = latch.begin();
            black_box(step.limits());
            latch.end(step);
        }
        black_box(&watcher);
    }))
}
