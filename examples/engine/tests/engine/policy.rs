//! The engine under memory pressure: levels rise, rungs engage in order, service goes on with the same tokens, and all of it
//! is undone afterwards. Over a tree of files like the kernel's; `tests/cgroup.rs` does it with a real limit.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::common::{
    Tree,
    server::{Server, alone, prompt, settings},
    tiny_file,
};
use memtier::{
    Blocks,
    pressure::{INTERVAL, Level, ProcFiles, Thresholds, Watcher},
};
use memtier_engine::{
    EngineError, Llm, ModelFile, Outcome, Sampling, Settings,
    policy::{CachedBlocks, Decision},
};
use memtier_model::write::TinyModel;

/// A cache of so many blocks.
struct Cached(Arc<Mutex<u64>>);

impl CachedBlocks for Cached {
    fn held(&self) -> Blocks {
        Blocks::new(*self.0.lock().unwrap())
    }

    fn evict_to(&mut self, most: Blocks) -> Blocks {
        let mut held = self.0.lock().unwrap();
        let given = held.saturating_sub(most.count());
        *held -= given;
        Blocks::new(given)
    }
}

#[test]
fn pressure_rises_and_falls_and_service_goes_on() {
    let (tree, file) = (Tree::new(), tiny_file("pressure", TinyModel::llama(5)));
    let file = ModelFile::open(file.path()).unwrap();
    let source = Box::new(ProcFiles::under(tree.root()));
    let watcher = Arc::new(Watcher::new(source, Thresholds::default(), INTERVAL).unwrap());
    watcher.start().unwrap();
    let mut server = Server::new(Llm::open_watched(&file, &settings(), Some(&watcher), &mut |_| ()).unwrap());
    let cached = Arc::new(Mutex::new(12));
    server.llm.set_cached_blocks(Box::new(Cached(cached.clone())));
    let configured = server.llm.limits().configured;
    assert_eq!(server.llm.limits().limits, configured);

    let mut slowest = Duration::ZERO;
    // 32 GiB, of which 4.8 are the reserve: available MiB, level, slots, tokens of a pass.
    for (mib, level, slots, chunk) in [
        (24_576, Level::Ok, 4, 32),
        (9000, Level::Watch, 4, 32),
        (5500, Level::Tight, 2, 16),
        (4915, Level::Critical, 1, 8),
        (5500, Level::Tight, 2, 16),
        (9000, Level::Watch, 4, 32),
        (24_576, Level::Ok, 4, 32),
    ] {
        tree.meminfo(32 << 20, mib << 10);
        let began = Instant::now();
        while server.llm.limits().level != level {
            server.turn(true);
            assert!(began.elapsed() < Duration::from_secs(60), "{level} never came");
        }
        slowest = slowest.max(began.elapsed());
        let held = *cached.lock().unwrap();
        let finished = server.finished.len();
        for _ in 0..60 {
            let tokens = server.turn(true);
            assert!(tokens <= chunk, "{tokens} tokens in a pass at {level}");
            assert_eq!((server.llm.limits().level, server.llm.limits().limits.slots), (level, slots));
        }
        // Who was told no at CRITICAL keeps the gate closed until the level is below TIGHT again.
        let closed = server.refused > 0 && level >= Level::Tight;
        assert!(closed || server.finished.len() > finished, "nobody was served at {level}");
        // Evicted for good from TIGHT on; until then nothing is.
        assert_eq!(*cached.lock().unwrap(), if level >= Level::Tight { 0 } else { held }, "{level}");
    }
    server.finish();
    println!("slowest signal to effect: {slowest:?}\n{}", server.llm.decisions());
    assert_eq!(server.llm.limits().limits, configured, "all undone");
    if crate::common::times_matter() {
        // The interval and the time of a pass.
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    }
    assert!(server.refused > 0, "at CRITICAL somebody is told no");
    assert_eq!(server.finished.len() as u32, server.submitted, "everybody was served in the end");
    for index in [1, 2, server.submitted / 2, server.submitted] {
        assert_eq!(server.finished[&index], alone(&file, index), "request {index}");
    }
    let said = server.llm.decisions().to_string();
    let order = ["watch: as configured", "tight: slots 4 -> 2", "critical: slots 4 -> 1"];
    let at: Vec<_> =
        order[1..].iter().map(|line| said.find(line).unwrap_or_else(|| panic!("{line}: {said}"))).collect();
    assert!(at.is_sorted(), "{said}");
    assert!(said.contains("cache: 12 blocks given up at tight"), "{said}");
}

#[test]
fn slots_bound_what_runs_and_the_others_wait() {
    let file = tiny_file("slots", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let settings = Settings { max_slots: Some(2), queue: 3, ..settings() };
    let mut server = Server::new(Llm::open(&file, &settings, &mut |_| ()).unwrap());
    (1..=5).for_each(|index| server.submit(index));
    // Nobody has started: three wait, and two were told no with a time to ask again.
    assert_eq!((server.llm.waiting(), server.refused, server.llm.running()), (3, 2, 0));
    server.turn(false);
    assert_eq!((server.llm.waiting() + server.again.len(), server.llm.running()), (3, 2));
    while server.llm.waiting() + server.running.len() + server.again.len() > 0 {
        server.turn(false);
        assert!(server.llm.running() <= 2);
    }
    for index in 1..=5 {
        assert_eq!(server.finished[&index], alone(&file, index));
    }
    let said = server.llm.decisions().to_string();
    assert!(said.contains("waits, all 2 slots are taken") && said.contains("3 requests wait already"), "{said}");
}

#[test]
fn a_stall_refuses_and_a_short_window_cuts_what_may_be_cut() {
    let (tree, file) = (Tree::new(), tiny_file("window", TinyModel::llama(5)));
    let file = ModelFile::open(file.path()).unwrap();
    let source = Box::new(ProcFiles::under(tree.root()));
    let watcher = Arc::new(Watcher::new(source, Thresholds::default(), INTERVAL).unwrap());
    watcher.poll_now();
    let mut llm = Llm::open_watched(&file, &settings(), Some(&watcher), &mut |_| ()).unwrap();
    let long: Vec<u32> = (0..150).map(|at| at % 200).collect();
    let only = |llm: &mut Llm| {
        let mut outcomes = Vec::new();
        llm.start_waiting(|_, outcome| outcomes.push(outcome));
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0)
    };
    // TIGHT: the window is 96 tokens of 192.
    tree.meminfo(32 << 20, 5500 << 10);
    watcher.poll_now();
    llm.submit(long.clone(), 8, Sampling::GREEDY, Some(50)).unwrap();
    let Outcome::Started(row) = only(&mut llm) else { panic!("not started") };
    assert_eq!(llm.tokens(row).unwrap(), &long[54..], "its last 96 tokens");
    llm.submit(long.clone(), 8, Sampling::GREEDY, None).unwrap();
    let Outcome::Refused(refusal) = only(&mut llm) else { panic!("not refused") };
    assert!(refusal.to_string().contains("prefill window is 96 tokens now") && refusal.retry_after.is_some());
    // A stall of all tasks, with memory to spare.
    tree.meminfo(32 << 20, 24 << 20);
    tree.write("proc/pressure/memory", b"some avg10=40.00 avg60=0.00\nfull avg10=20.00 avg60=0.00\n");
    watcher.poll_now();
    llm.submit(prompt(1), 8, Sampling::GREEDY, None).unwrap();
    let Outcome::Refused(refusal) = only(&mut llm) else { panic!("not refused") };
    assert!(refusal.to_string().contains("try again"), "{refusal}");
    let said = llm.decisions().to_string();
    assert!(said.contains("starts with the last 96 tokens of 150") && said.contains("refused: "), "{said}");
    assert!(
        llm.decisions().list().iter().any(|decision| matches!(decision, Decision::Chunk { now: 16, .. })),
        "{said}"
    );
}

#[test]
fn a_load_that_the_host_would_not_survive_is_refused() {
    let (tree, file) = (Tree::new(), tiny_file("load", TinyModel::llama(5)));
    let file = ModelFile::open(file.path()).unwrap();
    tree.meminfo(32 << 20, 4915 << 10);
    let source = Box::new(ProcFiles::under(tree.root()));
    let watcher = Arc::new(Watcher::new(source, Thresholds::default(), INTERVAL).unwrap());
    watcher.poll_now();
    let refused = Llm::open_watched(&file, &settings(), Some(&watcher), &mut |_| ()).err().unwrap();
    assert!(matches!(refused, EngineError::Load(_)), "{refused}");
    assert!(refused.to_string().contains("are there above its reserve"), "{refused}");
}
