//! Pools by themselves: counting, sharing, growth, threads. With steps, tables and fences: `tests/` of the crate.

use std::sync::Arc;

use super::*;
use crate::{
    Bytes, Device, HostBackend, Tokens,
    backend::{PhaseCell, Region},
    line::{Ground, Lot},
    part::{Declare, Part},
    plan::BlockGrant,
};

type Kv = GlobalKv<f32>;

fn pool_of<K: PoolKind<Element = f32>>(spec: PoolSpec) -> BlockPool<K> {
    let device = Device::new(HostBackend::new(), Bytes::gib(1));
    let priced = <BlockPool<K> as Declare>::price(&spec, &mut |_| {}).unwrap();
    let block = Bytes::new(4 * spec.block_elements as u64);
    let bytes = block.times(spec.most.count()).unwrap();
    let region = Region::reserve(&device.0, &Arc::new(PhaseCell::new()), "pool", bytes, Bytes::ZERO).unwrap();
    let PoolSpec { floor, most, step, per_block: tokens, .. } = spec;
    let blocks = Some(BlockGrant { block, tokens, floor, most, granted: most, step });
    let lot = Lot { addr: region.base(), region, blocks };
    <BlockPool<K> as Part>::carve(priced, &mut Ground::of(vec![lot]))
}

fn pool(blocks: u64) -> BlockPool<Kv> {
    pool_of(PoolSpec::fixed(Tokens::new(16), 64, Blocks::new(blocks)))
}

const ROOM: Tokens = Tokens::new(16 * 64);

#[test]
fn a_request_that_holds_more_than_it_needs_takes_nothing() {
    // Elsewhere `needed - held` went negative, and popping -1 blocks raised the free counter.
    let pool = pool(8);
    let mut request = pool.open(ROOM);
    request.push(Blocks::new(5)).unwrap();
    request.extend(Tokens::new(4 * 16)).unwrap();
    assert_eq!((request.blocks(), pool.free()), (Blocks::new(5), Blocks::new(3)));
    let mut rest = pool.open(ROOM);
    rest.push(Blocks::new(3)).unwrap();
    let mut ids: Vec<_> = request.ids().iter().chain(rest.ids()).copied().collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
    assert!(matches!(rest.push(Blocks::new(1)), Err(AcquireBlocksError::Full { .. })));
}

#[test]
fn two_thousand_ends_of_every_kind_leave_every_block_free() {
    let pool = pool(32);
    for round in 0..2000u64 {
        let mut request = pool.open(ROOM);
        // Also lengths on exact block boundaries, and none at all.
        request.extend(Tokens::new(round % 97)).unwrap();
        match round % 3 {
            0 => drop(request),
            1 => {
                request.evict(0);
                request.truncate(Blocks::new(round % 5));
                drop(request);
            }
            _ => {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _request = request;
                    std::panic::resume_unwind(Box::new("the request's task panics"));
                }));
            }
        }
        assert_eq!(pool.free(), Blocks::new(32));
    }
}

#[test]
fn all_or_nothing() {
    let pool = pool(4);
    let mut one = pool.open(ROOM);
    one.extend(Tokens::new(3 * 16)).unwrap();
    let mut other = pool.open(ROOM);
    let full = other.extend(Tokens::new(2 * 16)).unwrap_err();
    assert_eq!(full, AcquireBlocksError::Full { pool: "global KV", needed: Blocks::new(2), free: Blocks::new(1) });
    assert_eq!((other.blocks(), pool.free()), (Blocks::ZERO, Blocks::new(1)));
    // Freed by the first, it goes.
    drop(one);
    other.extend(Tokens::new(2 * 16)).unwrap();
}

#[test]
fn a_request_larger_than_the_pool_does_not_keep_a_smaller_one_waiting() {
    let pool = pool(76);
    let mut large = pool.open(Tokens::new(16 * 100));
    assert!(large.push(Blocks::new(100)).is_err());
    let mut small = pool.open(ROOM);
    small.push(Blocks::new(10)).unwrap();
}

#[test]
fn a_shared_block_is_free_when_its_last_referent_goes() {
    let pool = pool(2);
    let one = pool.acquire().unwrap();
    let other = one.share();
    assert_eq!(one.referents(), 2);
    drop(one);
    assert_eq!(pool.free(), Blocks::new(1));
    drop(other);
    assert_eq!(pool.free(), Blocks::new(2));
}

#[test]
fn a_fixed_pool_is_full_where_a_growable_one_grows_in_place() {
    // A pool of 256 that could only add another region never served one request of 1024.
    let growable = PoolSpec {
        initial: Blocks::new(256),
        step: Blocks::new(768),
        floor: Blocks::new(256),
        ..PoolSpec::fixed(Tokens::new(16), 64, Blocks::new(1024))
    };
    let pool = pool_of::<Kv>(growable);
    let mut request = pool.open(Tokens::new(16 * 1024));
    let full = request.push(Blocks::new(1024)).unwrap_err();
    assert_eq!(full, AcquireBlocksError::Full { pool: "global KV", needed: Blocks::new(1024), free: Blocks::new(256) });
    assert_eq!(pool.grow(pool.planned_commit().unwrap()).unwrap(), Blocks::new(768));
    request.push(Blocks::new(1024)).unwrap();
    assert!(pool.planned_commit().is_none(), "the plan paid for one step");
}

#[test]
fn what_growth_added_is_given_back_when_its_blocks_are_free() {
    let spec = PoolSpec {
        initial: Blocks::new(2),
        step: Blocks::new(2),
        ..PoolSpec::fixed(Tokens::new(16), 1024, Blocks::new(8))
    };
    let pool = pool_of::<Kv>(spec);
    while let Some(commit) = pool.planned_commit() {
        pool.grow(commit).unwrap();
    }
    let mut request = pool.open(ROOM);
    request.push(Blocks::new(5)).unwrap();
    // Blocks 0 to 4 are held: of the three steps only the last is free.
    assert_eq!(pool.give_back(&Quiet::drained()).unwrap(), Bytes::new(2 * 4096));
    assert_eq!((pool.committed(), pool.free(), pool.most()), (Blocks::new(6), Blocks::new(1), Blocks::new(8)));
    drop(request);
    assert_eq!(pool.give_back(&Quiet::drained()).unwrap(), Bytes::new(4 * 4096));
    assert_eq!(
        (pool.committed(), pool.free()),
        (Blocks::new(2), Blocks::new(2)),
        "what was there from the start stays"
    );
    // What was given back can be taken again.
    pool.grow(pool.planned_commit().unwrap()).unwrap();
    assert_eq!(pool.free(), Blocks::new(4));
}

#[test]
fn a_commit_of_another_pool_comes_back() {
    let spec = PoolSpec { initial: Blocks::new(1), ..PoolSpec::fixed(Tokens::new(16), 64, Blocks::new(2)) };
    let (one, other) = (pool_of::<Kv>(spec), pool_of::<Kv>(spec));
    let refused = one.grow(other.planned_commit().unwrap()).unwrap_err();
    assert!(refused.cause.is_none());
    other.grow(refused.commit).unwrap();
}

#[test]
fn the_window_leaves_holes_and_keeps_positions() {
    let pool = pool_of::<SwaKv<f32>>(PoolSpec::fixed(Tokens::new(32), 64, Blocks::new(6)));
    let mut request = pool.open(Tokens::new(320));
    request.extend(Tokens::new(160)).unwrap();
    let ids = request.ids().to_vec();
    request.evict_before(Tokens::new(31));
    assert_eq!(request.ids(), ids, "token 31 is still seen");
    request.evict_before(Tokens::new(64));
    assert_eq!((request.blocks(), request.id(0), request.id(2)), (Blocks::new(3), None, Some(ids[2])));
    assert_eq!(pool.free(), Blocks::new(3));
    assert_eq!(request.capacity(), Tokens::new(160), "holes keep their positions");
}

#[test]
fn a_dropped_pool_takes_no_new_requests() {
    let pool = pool(4);
    let (handle, mut request) = (pool.handle(), pool.open(ROOM));
    request.push(Blocks::new(1)).unwrap();
    drop(pool);
    assert!(matches!(request.push(Blocks::new(1)), Err(AcquireBlocksError::ModelEnded { .. })));
    drop((request, handle));
}

#[test]
fn threads_take_and_give_without_losing_a_block() {
    let pool = pool(64);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let handle = pool.handle();
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..3000u64 {
                    let mut request = handle.open(ROOM);
                    if request.push(Blocks::new(1 + (round * 7 + thread) % 5)).is_ok()
                        && let Some(shared) = request.share(0)
                    {
                        held.push(shared);
                    }
                    if held.len() > 6 {
                        drop(held.remove(0));
                    }
                }
            });
        }
    });
    assert_eq!(pool.free(), Blocks::new(64));
    // Every id is there once.
    let mut all = pool.open(ROOM);
    all.push(Blocks::new(64)).unwrap();
    let mut ids = all.ids().to_vec();
    ids.sort_unstable();
    assert_eq!(ids, (0..64).collect::<Vec<_>>());
}

#[test]
fn opening_and_ending_requests_reuses_their_tables() {
    let pool = pool(8);
    let mut request = pool.open(ROOM);
    request.push(Blocks::new(3)).unwrap();
    let table = request.ids().as_ptr();
    drop(request);
    let mut next = pool.open(ROOM);
    next.push(Blocks::new(3)).unwrap();
    assert_eq!(next.ids().as_ptr(), table);
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    let price = |spec: PoolSpec| <BlockPool<Kv> as Declare>::price(&spec, &mut |_| {}).unwrap_err().to_string();
    let spec = PoolSpec::fixed(Tokens::new(16), 64, Blocks::new(8));
    assert!(price(PoolSpec { per_block: Tokens::ZERO, ..spec }).contains("zero"));
    assert!(price(PoolSpec { step: Blocks::ZERO, ..spec }).contains("zero"));
    assert!(price(PoolSpec { block_elements: 0, ..spec }).contains("zero"));
    assert!(price(PoolSpec { most: Blocks::new(1 << 33), ..spec }).contains("8589934592"));
    assert!(price(PoolSpec { block_elements: usize::MAX, ..spec }).contains("64 bits"));
}

#[test]
fn the_next_model_has_a_cache_of_its_own_whoever_has_a_handle_of_the_old_one() {
    let pool = pool(4);
    let cache = |pool: &BlockPool<Kv>| PrefixCache::new(&pool.handle(), PrefixCacheSpec::new(Blocks::new(4)));
    let old = cache(&pool).unwrap();
    let root = old.root(&RootKey::new("weights")).unwrap();
    assert!(matches!(cache(&pool), Err(PrefixCacheError::Second { .. })));
    let pool = <BlockPool<Kv> as Part>::kept(pool);
    let new = cache(&pool).unwrap();
    assert_eq!(old.lookup(&Content::new(root, &[])).unwrap_err(), PrefixCacheError::ModelEnded);
    assert!(matches!(cache(&pool), Err(PrefixCacheError::Second { .. })));
    drop((old, new));
    cache(&pool).unwrap();
}

#[test]
fn a_block_larger_than_memory_is_an_error_of_the_cache() {
    let spec = PoolSpec::fixed(Tokens::new(u64::MAX / 2), 64, Blocks::new(4));
    let pool = pool_of::<Kv>(spec);
    let refused = PrefixCache::new(&pool.handle(), PrefixCacheSpec::new(Blocks::new(4))).unwrap_err();
    assert!(matches!(refused, PrefixCacheError::Size { .. }), "{refused}");
}
