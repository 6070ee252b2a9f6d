//! What counts as free, who gets it, and what goes back to the system.

use memtier::{AcquireBlocksError, Blocks, PoolSpec, Tokens};

use crate::fixture::{Fixture, MOST, PER_BLOCK, fixed, tokens};

#[test]
fn a_request_larger_than_the_pool_does_not_empty_the_cache() {
    let mut all = Fixture::new(fixed(76), 76);
    drop(all.publish(&tokens(0, 50)));
    let mut large = all.engine.bundle().kv.open(Tokens::new(100 * PER_BLOCK));
    let refused = large.push(Blocks::new(100)).unwrap_err();
    assert!(matches!(refused, AcquireBlocksError::Full { needed, .. } if needed == Blocks::new(100)));
    assert_eq!(all.cached(), 50, "100 blocks of 76: giving up the cache would not have helped");
    // The next one does not wait for it, and gets the ten blocks that were free; one for all of them empties the cache.
    let mut small = all.engine.bundle().kv.open(MOST);
    small.push(Blocks::new(10)).unwrap();
    assert_eq!(all.cached(), 50);
    drop(small);
    large.push(Blocks::new(76)).unwrap();
    assert_eq!(all.cached(), 0);
}

#[test]
fn what_the_cache_alone_needs_counts_as_free() {
    let mut all = Fixture::new(fixed(8), 8);
    let request = all.publish(&tokens(0, 4));
    let pool = all.engine.bundle().kv.handle();
    assert_eq!((pool.free(), pool.reclaimable(), pool.available()), (Blocks::new(4), Blocks::ZERO, Blocks::new(4)));
    drop(request);
    assert_eq!((pool.free(), pool.reclaimable(), pool.available()), (Blocks::new(4), Blocks::new(4), Blocks::new(8)));
    // The last block of the path goes first: what is left is a prefix still.
    let mut other = pool.open(MOST);
    other.push(Blocks::new(5)).unwrap();
    assert_eq!((all.found(&tokens(0, 4)), all.cached()), (3, 3));
}

#[test]
fn a_fork_that_has_the_oldest_blocks_does_not_starve_others() {
    let mut all = Fixture::new(fixed(6), 6);
    let mut first = all.open(&[]);
    let settled = all.write(&mut first, &tokens(0, 2));
    let fork = first.fork(MOST);
    let content = memtier::Content::new(all.root, &tokens(0, 2)).tokens.to_vec();
    all.cache.publish(&mut first, &settled, &memtier::Content::new(all.root, &content)).unwrap();
    drop(first);
    drop(all.publish(&tokens(100, 2)));
    let mut rest = all.engine.bundle().kv.open(MOST);
    rest.push(Blocks::new(2)).unwrap();
    // Four cached blocks: the two oldest are the fork's, too, and giving those up frees nothing.
    assert_eq!((all.free(), all.cached()), (0, 4));
    rest.push(Blocks::new(1)).unwrap();
    rest.push(Blocks::new(1)).unwrap();
    assert_eq!((all.free(), all.cached()), (0, 0));
    all.verify(&fork, &tokens(0, 2));
    drop((fork, rest));
    assert_eq!(all.free(), 6);
}

#[test]
fn a_refused_drain_leaves_the_cache() {
    let mut all = Fixture::new(fixed(8), 8);
    drop(all.publish(&tokens(0, 4)));
    let request = all.publish(&tokens(100, 1));
    let Fixture { cache, engine, root, .. } = all;
    let Err(refused) = engine.drain() else { panic!("a request has a block") };
    assert!(refused.to_string().contains("1 block"), "{refused}");
    let prompt = tokens(0, 4);
    assert_eq!(cache.lookup(&memtier::Content::new(root, &prompt)).unwrap().blocks(), Blocks::new(4));
    drop(request);
    let Ok(drained) = refused.engine.drain() else { panic!("only the cache has blocks") };
    assert_eq!(cache.stats().cached, Blocks::ZERO);
    drop(drained);
}

#[test]
fn growth_goes_back_although_the_cache_has_its_blocks() {
    let block = PER_BLOCK * 8;
    let pages = 4096 / block;
    let spec = PoolSpec {
        initial: Blocks::new(pages),
        step: Blocks::new(pages),
        floor: Blocks::new(pages),
        ..fixed(2 * pages)
    };
    let mut all = Fixture::new(spec, 2 * pages);
    let mut low = all.engine.bundle().kv.open(Tokens::new(2 * pages * PER_BLOCK));
    low.push(Blocks::new(pages - 1)).unwrap();
    all.engine.bundle().kv.grow(all.engine.bundle().kv.planned_commit().unwrap()).unwrap();
    // One below the growth, three in it.
    let request = all.publish(&tokens(0, 4));
    assert!(all.engine.give_back().unwrap().is_zero(), "a request has blocks there");
    assert_eq!(all.cached(), 4);
    drop(request);
    assert!(!all.engine.give_back().unwrap().is_zero());
    assert_eq!(all.engine.bundle().kv.committed(), Blocks::new(pages));
    assert!(all.cached() <= 1, "{} cached", all.cached());
    drop(low);
    assert_eq!(all.free() + all.cached(), pages);
}
