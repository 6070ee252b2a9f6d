//! Requests on several threads: found, published, forked, dropped elsewhere, evicted, all at a time. `MEMTIER_ROUNDS` makes it longer; run it
//! under ThreadSanitizer as CONTRIBUTING.md says.

use std::sync::{Mutex, mpsc};

use memtier::{Blocks, Content, PinOwner, PoolHandle, Ticket, Tokens};

use crate::fixture::{Cache, Fixture, Kv, MOST, PER_BLOCK, fixed};

const THREADS: u32 = 3;
const BLOCKS: u64 = 40;

fn rounds() -> u32 {
    std::env::var("MEMTIER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(400)
}

/// Numbers without an order.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// A prompt whose tokens tell which tokens are before them: values at a wrong place, or of another prompt, show.
fn prompt(bits: u64, length: u64) -> Vec<u32> {
    let mut last = 1u32;
    let next = |index: u64| {
        let bit = (bits >> (index / PER_BLOCK) & 1) as u32;
        last = (last ^ bit).wrapping_mul(0x9e37_79b9).rotate_left(7) ^ index as u32;
        last
    };
    (0..length).map(next).collect()
}

/// One thread's requests, until it has done its rounds. Some end on another thread.
fn serve(all: &Mutex<Fixture>, cache: &Cache, pool: &PoolHandle<Kv>, seed: u32, elsewhere: &mpsc::Sender<Ticket<Kv>>) {
    let root = all.lock().unwrap().root;
    let mut random = Random(u64::from(seed));
    for _ in 0..rounds() {
        let tokens = prompt(random.below(16), 1 + random.below(6 * PER_BLOCK));
        let content = Content::new(root, &tokens);
        let lease = cache.lookup(&content).unwrap();
        let pin = (random.below(4) == 0).then(|| cache.pin(PinOwner(u64::from(seed)), &lease));
        let alike = lease.alike(&content);
        let mut request = lease.open(MOST);
        let found = request.tokens().count() as usize;
        if request.extend(Tokens::new((tokens.len() - found) as u64)).is_err() {
            continue;
        }
        drop(alike);
        if found < tokens.len() {
            let settled = all.lock().unwrap().write(&mut request, &tokens);
            cache.publish(&mut request, &settled, &content).unwrap();
        }
        let fork = (random.below(3) == 0).then(|| request.fork(MOST));
        if random.below(8) == 0 {
            cache.evict(Blocks::new(random.below(6)));
            assert!(pool.available() <= Blocks::new(2 * BLOCKS));
        }
        all.lock().unwrap().verify(&request, &tokens);
        let (first, second) = if random.below(2) == 0 { (Some(request), fork) } else { (fork, Some(request)) };
        first.into_iter().for_each(|request| elsewhere.send(request).unwrap());
        drop((second, pin));
    }
}

#[test]
fn requests_of_all_threads_give_everything_back() {
    let all = Fixture::new(fixed(BLOCKS), 24);
    let (cache, pool) = (all.cache.clone(), all.engine.bundle().kv.handle());
    for seed in 0..THREADS {
        cache.set_pin_budget(PinOwner(u64::from(seed)), Blocks::new(4)).unwrap();
    }
    let all = Mutex::new(all);
    std::thread::scope(|scope| {
        let (elsewhere, ended) = mpsc::channel();
        for seed in 0..THREADS {
            let (elsewhere, cache, pool, all) = (elsewhere.clone(), cache.clone(), pool.clone(), &all);
            scope.spawn(move || serve(all, &cache, &pool, seed, &elsewhere));
        }
        drop(elsewhere);
        // Somebody whose blocks come and go meanwhile, without a cache.
        let mut random = Random(99);
        for request in ended {
            let mut other = pool.open(MOST);
            let _ = other.push(Blocks::new(random.below(12)));
            drop(request);
        }
    });
    let all = all.into_inner().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.cached, all.free() + all.cached()), (stats.reclaimable, BLOCKS));
    assert!(stats.hits > 0 && stats.evicted > 0, "{stats:?}");
    cache.evict(Blocks::new(BLOCKS));
    assert_eq!(all.free(), BLOCKS);
}
