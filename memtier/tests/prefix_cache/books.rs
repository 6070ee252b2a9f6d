//! Roots, sizes, leases, forks: who may have what, and that all of it comes back.

use memtier::{
    Blocks, CacheEvent, Content, FakeBackend, PinOwner, PrefixCache, PrefixCacheError, PrefixCacheSpec, RootKey, Tokens,
};

use crate::fixture::{Fixture, MOST, PER_BLOCK, fixed, tokens};

#[test]
fn threads_that_ask_for_one_root_get_one() {
    let all = Fixture::new(fixed(8), 8);
    for round in 0..300u32 {
        let (key, barrier) = (RootKey::new(round.to_le_bytes()), std::sync::Barrier::new(3));
        let roots = std::thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                all.cache.root(&key).unwrap()
            };
            let all = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
            all.map(|thread| thread.join().unwrap())
        });
        assert!(roots.iter().all(|root| *root == roots[0]), "{roots:?}");
        all.cache.forget(roots[0]).unwrap();
        assert_eq!(all.cache.forget(roots[0]), Err(PrefixCacheError::Root), "forgotten once, and all of it");
    }
}

#[test]
fn absurd_sizes_are_errors() {
    let all = Fixture::new(fixed(8), 8);
    let pool = all.engine.bundle().kv.handle();
    let Fixture { cache, .. } = all;
    drop(cache);
    let spec = PrefixCacheSpec::new(Blocks::new(8));
    for spec in [
        PrefixCacheSpec { most: Blocks::ZERO, ..spec },
        PrefixCacheSpec { roots: 0, ..spec },
        PrefixCacheSpec { roots: usize::MAX, ..spec },
        PrefixCacheSpec { events: usize::MAX, ..spec },
    ] {
        let refused = PrefixCache::new(&pool, spec).unwrap_err();
        assert!(matches!(refused, PrefixCacheError::Size { .. }), "{refused}");
    }
    // More blocks than the pool has cost nothing and are no error.
    PrefixCache::new(&pool, PrefixCacheSpec::new(Blocks::new(u64::MAX))).unwrap();
}

#[test]
fn a_forgotten_root_is_published_behind_by_nobody() {
    let mut all = Fixture::new(fixed(16), 16);
    let prompt = tokens(0, 3);
    let mut request = all.publish(&prompt[..8]);
    let settled = all.write(&mut request, &prompt);
    all.cache.forget(all.root).unwrap();
    let refused = all.cache.publish(&mut request, &settled, &Content::new(all.root, &prompt)).unwrap_err();
    assert_eq!(refused, PrefixCacheError::Root);
    // The request goes on with what it has; nobody finds it under the new root of the same key.
    all.verify(&request, &prompt);
    all.root = all.cache.root(&RootKey::new("weights")).unwrap();
    assert_eq!(all.found(&prompt), 0);
    drop(request);
    all.cache.evict(Blocks::new(16));
    assert_eq!((all.cached(), all.free()), (0, 16));
}

#[test]
fn a_request_of_one_root_is_not_published_behind_another() {
    let mut all = Fixture::new(fixed(16), 16);
    let prompt = tokens(0, 3);
    let mut request = all.publish(&prompt[..8]);
    let settled = all.write(&mut request, &prompt);
    let adapter = all.cache.root(&RootKey::new("weights").with("adapter", "a")).unwrap();
    let refused = all.cache.publish(&mut request, &settled, &Content::new(adapter, &prompt)).unwrap_err();
    assert_eq!(refused, PrefixCacheError::OtherRoot);
    assert_eq!((all.cached(), all.found(&prompt)), (2, 2));
}

#[test]
fn leases_outlive_the_handles_of_their_cache() {
    let mut all = Fixture::new(fixed(16), 16);
    let prompt = tokens(0, 3);
    drop(all.publish(&prompt));
    let request = all.open(&prompt);
    let second = PrefixCache::new(&all.engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(8)));
    assert_eq!(second.unwrap_err(), PrefixCacheError::Second { pool: "global KV" });
    let Fixture { cache, root, stream, engine, fake } = all;
    drop(cache);
    // Still the pool's cache: a request has it. What nothing needs but it is given up as ever.
    assert_eq!(engine.bundle().kv.free(), Blocks::new(13));
    drop(request);
    assert_eq!(engine.bundle().kv.free(), Blocks::new(16), "with the last lease goes the cache");
    let cache = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(8))).unwrap();
    let refused = cache.lookup(&Content::new(root, &prompt)).unwrap_err();
    assert_eq!(refused, PrefixCacheError::Root, "a root of the old cache");
    drop((stream, engine, fake));
}

#[test]
fn requests_and_roots_of_another_pool_are_refused() {
    let (mut one, mut other) = (Fixture::new(fixed(8), 8), Fixture::new(fixed(8), 8));
    let prompt = tokens(0, 2);
    let mut request = one.open(&prompt);
    let settled = one.write(&mut request, &prompt);
    let content = Content::new(other.root, &prompt);
    let refused = other.cache.publish(&mut request, &settled, &content).unwrap_err();
    assert_eq!(refused, PrefixCacheError::ForeignTicket);
    assert_eq!(other.cache.lookup(&Content::new(one.root, &prompt)).unwrap_err(), PrefixCacheError::Root);
    assert_eq!(other.cache.forget(one.root), Err(PrefixCacheError::Root));
    let settled = other.settle();
    let refused = one.cache.publish(&mut request, &settled, &Content::new(one.root, &prompt));
    assert!(refused.is_ok(), "the writes are done, whoever's fence proves nothing else");
}

#[test]
fn forks_of_forks_end_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut all = Fixture::new(fixed(16), 16);
        let prompt = tokens(0, 3);
        let mut first = all.publish(&prompt[..8]);
        all.write(&mut first, &prompt[..10]);
        let second = first.fork(MOST);
        let third = second.fork(MOST);
        assert_eq!(all.free(), 16 - 3, "two cached and one shared");
        let mut requests = [Some(first), Some(second), Some(third)];
        // Each writes another token 10.
        for (token, request) in (50..).zip(&mut requests) {
            let request = request.as_mut().unwrap();
            let owned = all.own(request, 2);
            assert_eq!(owned, token < 52, "the last one has it for itself");
            let mut prompt = prompt[..10].to_vec();
            prompt.push(token);
            all.write(request, &prompt);
        }
        for (token, request) in (50..).zip(&requests) {
            let mut prompt = prompt[..10].to_vec();
            prompt.push(token);
            all.verify(request.as_ref().unwrap(), &prompt);
        }
        order.iter().for_each(|index: &usize| drop(requests[*index].take()));
        assert_eq!((all.free(), all.cached()), (14, 2));
        all.cache.evict(Blocks::new(2));
        assert_eq!(all.free(), 16);
    }
}

#[test]
fn a_pin_holds_what_pressure_would_take() {
    let mut all = Fixture::new(fixed(8), 8);
    let (pinned, other) = (tokens(0, 2), tokens(100, 2));
    drop(all.publish(&pinned));
    drop(all.publish(&other));
    all.cache.set_pin_budget(PinOwner(7), Blocks::new(2)).unwrap();
    let lease = all.cache.lookup(&Content::new(all.root, &pinned)).unwrap();
    let pin = all.cache.pin(PinOwner(7), &lease).unwrap();
    assert!(all.cache.pin(PinOwner(7), &lease).is_err(), "its budget is used up");
    drop(lease);
    let mut request = all.engine.bundle().kv.open(MOST);
    request.push(Blocks::new(6)).unwrap();
    assert_eq!((all.found(&pinned), all.found(&other)), (2, 0), "the older one stays");
    assert!(request.push(Blocks::new(1)).is_err());
    drop(pin);
    request.push(Blocks::new(1)).unwrap();
    assert_eq!(all.found(&pinned), 1);
}

#[test]
fn events_tell_what_is_there() {
    let spec = PrefixCacheSpec { events: 6, ..PrefixCacheSpec::new(Blocks::new(4)) };
    let mut all = Fixture::on(FakeBackend::new(), fixed(16), spec);
    let mut there = std::collections::HashMap::new();
    let mut follow = |all: &Fixture| {
        let lost = all.cache.events(|event| match event {
            CacheEvent::Stored { block, parent } => drop(there.insert(block, parent)),
            CacheEvent::Evicted { block } | CacheEvent::Removed { block } => drop(there.remove(&block)),
            other => panic!("{other:?}"),
        });
        (there.len() as u64, lost)
    };
    drop(all.publish(&tokens(0, 3)));
    assert_eq!(follow(&all), (3, 0));
    drop(all.publish(&tokens(100, 3)));
    assert_eq!((follow(&all), all.cached()), ((4, 0), 4), "two made room");
    all.cache.forget(all.root).unwrap();
    assert_eq!((follow(&all), all.cached()), ((0, 0), 0));
    // Nobody listens for too long: it is told how much it missed.
    all.root = all.cache.root(&RootKey::new("other")).unwrap();
    (0..4).for_each(|first| drop(all.publish(&tokens(100 * first, 2))));
    assert_eq!(follow(&all).1, 6, "eight stored and four evicted, of which six are kept");
}

#[test]
fn a_sequence_that_is_gone_before_it_is_published_leaves_nothing_behind() {
    let mut all = Fixture::new(fixed(8), 8);
    let prompt = tokens(0, 3);
    let mut request = all.open(&prompt);
    all.write(&mut request, &prompt);
    drop(request);
    assert_eq!((all.found(&prompt), all.cached(), all.free()), (0, 0, 8));
    drop(all.publish(&prompt));
    assert_eq!(all.found(&prompt), 3);
    // Behind a window or a hole, nothing is published.
    let other = tokens(200, 4);
    let mut request = all.open(&other);
    let settled = all.write(&mut request, &other);
    request.evict(1);
    let published = all.cache.publish(&mut request, &settled, &Content::new(all.root, &other)).unwrap();
    assert_eq!((published, all.found(&other)), (Tokens::new(PER_BLOCK), 1));
}

#[test]
fn many_blocks_behind_one_are_told_apart() {
    let mut all = Fixture::new(fixed(64), 64);
    let prompt = |number: u32| [[0, 1, 2, 3], [100 + number, 5, 6, 7], [8, 9, 10, 11]].concat();
    for round in 0..3 {
        // One, then many, then one again, then many: what finds them changes with their number.
        for number in 0..20 {
            assert_eq!(all.found(&prompt(number)), if number == 0 && round == 0 { 0 } else { 1 }, "{number}");
            drop(all.publish(&prompt(number)));
        }
        (0..20).for_each(|number| assert_eq!(all.found(&prompt(number)), 3, "{number}"));
        assert_eq!((all.found(&prompt(20)), all.cached()), (1, 41));
        let kept = all.open(&prompt(19));
        all.cache.evict(Blocks::new(38));
        assert_eq!((all.found(&prompt(19)), all.found(&prompt(0)), all.cached()), (3, 1, 3));
        drop(kept);
        all.cache.evict(Blocks::new(2));
    }
}
