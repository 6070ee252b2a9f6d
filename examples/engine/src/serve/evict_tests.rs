//! The eviction rung on a real prefix cache over the engine's own pool.

use std::sync::{Arc, Mutex};

use memtier::{
    Blocks, Bytes, Content, PrefixCache, PrefixCacheSpec, RootKey,
    pressure::{HostReading, INTERVAL, Level, Sample, Source, Thresholds, Watcher},
};
use memtier_model::write::TinyModel;

use crate::{Llm, ModelFile, Sampling, Settings};

/// MiB available of 32 GiB, of which 4.8 are the reserve.
struct Host(Arc<Mutex<u64>>);

impl Source for Host {
    fn sample(&mut self, sample: &mut Sample) {
        let available = Bytes::mib(*self.0.lock().unwrap());
        sample.host = Some(HostReading { total: Bytes::gib(32), available });
    }
}

#[test]
fn at_tight_the_prefix_cache_gives_its_blocks_back_and_not_those_in_use() {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, TinyModel::llama(5).to_gguf().unwrap().to_bytes()).unwrap();
    let file = ModelFile::open(path.path()).unwrap();
    let settings =
        Settings { budget: Bytes::mib(64), max_seq_len: 128, threads: 1, prefix_cache: false, ..Settings::default() };
    let now = Arc::new(Mutex::new(24_000));
    let watcher = Watcher::new(Box::new(Host(now.clone())), Thresholds::default(), INTERVAL).unwrap();
    watcher.poll_now();
    let watcher = Arc::new(watcher);
    let mut llm = Llm::open_watched(&file, &settings, Some(&watcher), &mut |_| ()).unwrap();
    let cache = PrefixCache::new(&llm.engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(16))).unwrap();
    llm.set_cached_blocks(Box::new(cache.clone()));
    let root = cache.root(&RootKey::new("tiny")).unwrap();

    // Two requests leave their full blocks to the cache, five and two; the second goes on.
    let prompts: [Vec<u32>; 2] = [(0..80).collect(), (100..133).collect()];
    let rows: Vec<_> = prompts.iter().map(|prompt| llm.admit(prompt, 20, Sampling::GREEDY).unwrap()).collect();
    llm.step(|_| ()).unwrap();
    let settled = llm.engine.step(&mut llm.stream).unwrap().finish().unwrap().wait().unwrap();
    for (row, prompt) in rows.iter().zip(&prompts) {
        let sequence = llm.sequences[*row].as_mut().unwrap();
        cache.publish(&mut sequence.kv, &settled, &Content::new(root, prompt)).unwrap();
    }
    llm.end(rows[0]).unwrap();
    llm.step(|_| ()).unwrap();
    assert_eq!((cache.stats().cached, cache.stats().reclaimable), (Blocks::new(7), Blocks::new(5)));
    let held = |llm: &Llm| llm.memory_report().pools[0].held.count();
    let before = held(&llm);

    *now.lock().unwrap() = 5500;
    watcher.poll_now();
    llm.step(|_| ()).unwrap();
    assert_eq!(llm.limits().level, Level::Tight);
    assert_eq!((cache.stats().reclaimable, before - held(&llm)), (Blocks::ZERO, 5));
    assert!(llm.decisions().to_string().contains("cache: 5 blocks given up at tight"), "{}", llm.decisions());

    // The request in use is not disturbed, and what it says is what it says alone.
    while llm.step(|_| ()).unwrap() > 0 {}
    let shared = llm.tokens(rows[1]).unwrap().to_vec();
    llm.end(rows[1]).unwrap();
    let mut alone = Llm::open(&file, &settings, &mut |_| ()).unwrap();
    let row = alone.admit(&prompts[1], 20, Sampling::GREEDY).unwrap();
    while alone.step(|_| ()).unwrap() > 0 {}
    assert_eq!(alone.tokens(row).unwrap(), shared);
}
