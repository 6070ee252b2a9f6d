//! Who may write what, and when it counts as written.

use memtier::{
    AdvanceError, BlockError, Blocks, Content, FakeBackend, PoolSpec, PrefixCacheError, PrefixCacheSpec, RowError,
    Tokens,
};

use crate::fixture::{Fixture, MOST, PER_BLOCK, fixed, tokens};

#[test]
fn tokens_that_another_wrote_are_not_a_forks() {
    let mut all = Fixture::new(fixed(8), 8);
    let prompt = tokens(0, 2);
    let mut first = all.open(&prompt);
    all.write(&mut first, &prompt[..6]);
    let mut fork = first.fork(MOST);
    // The first one's launches did reach the block; the fork's did not, and what is there is not its own.
    let fence = all.engine.step(&mut all.stream).unwrap().finish().unwrap();
    assert_eq!(fork.advance(Tokens::new(2), &fence), Err(AdvanceError::Shared { block: 1 }));
    assert_eq!(first.advance(Tokens::new(2), &fence), Err(AdvanceError::Shared { block: 1 }));
    fence.wait().unwrap();
    // By a copy it is.
    assert!(all.own(&mut fork, 1));
    all.write(&mut fork, &[0, 1, 2, 3, 4, 5, 90, 91]);
    all.write(&mut first, &prompt);
    all.verify(&first, &prompt);
}

#[test]
fn a_cached_block_is_written_by_nobody() {
    let mut all = Fixture::new(fixed(8), 8);
    let prompt = tokens(0, 3);
    let mut request = all.publish(&prompt);
    request.rewind(Tokens::new(3)).unwrap();
    let mut step = all.engine.step(&mut all.stream).unwrap();
    assert!(matches!(step.buffers.kv.block_mut(&mut request, 2), Err(BlockError::Shared { index: 2, .. })));
    assert_eq!(step.buffers.rows.set(step.on, 0, &request), Err(RowError::Shared { block: 2 }));
    let fence = step.finish().unwrap();
    assert_eq!(request.advance(Tokens::new(1), &fence), Err(AdvanceError::Cached { block: 2 }));
    fence.wait().unwrap();
    // In the middle of the path it has: what is cached stays cached, and stays as it is.
    request.rewind(Tokens::new(3)).unwrap();
    assert!(all.own(&mut request, 1));
    let mut other = prompt[..6].to_vec();
    other.extend([70, 71, 72, 73]);
    assert!(all.own(&mut request, 2), "its other referent is the cache");
    let settled = all.write(&mut request, &other);
    all.verify(&request, &other);
    let again = all.open(&prompt);
    assert_eq!(again.blocks(), Blocks::new(3));
    all.verify(&again, &prompt);
    // Both are cached then, with a common first block.
    all.cache.publish(&mut request, &settled, &Content::new(all.root, &other)).unwrap();
    assert_eq!((all.found(&other), all.found(&prompt), all.cached()), (2, 3, 4));
    drop((request, again));
    all.cache.evict(Blocks::new(8));
    assert_eq!(all.free(), 8);
}

#[test]
fn what_is_in_flight_is_not_published() {
    let spec = PrefixCacheSpec::new(Blocks::new(8));
    let mut all = Fixture::on(FakeBackend::asynchronous(), fixed(8), spec);
    let prompt = tokens(0, 2);
    let early = all.settle();
    let mut request = all.open(&prompt);
    let fence = all.launch(&mut request, &prompt);
    let content = Content::new(all.root, &prompt);
    assert_eq!(all.cache.publish(&mut request, &early, &content), Err(PrefixCacheError::InFlight));
    // Gone in mid-prefill: nobody finds it, and nobody gets its blocks before the launches are done.
    let mut other = all.open(&prompt);
    drop(request);
    assert!(other.push(Blocks::new(7)).is_err());
    assert_eq!(all.found(&prompt), 0);
    fence.wait().unwrap();
    other.push(Blocks::new(8)).unwrap();
}

#[test]
fn a_prefix_published_in_mid_prefill_survives_its_request() {
    let mut all = Fixture::new(fixed(6), 6);
    let prompt = tokens(0, 4);
    // Two of four chunks are published, then the request is aborted, and others refill all other blocks.
    drop(all.publish(&prompt[..8]));
    let mut other = all.open(&tokens(500, 4));
    all.write(&mut other, &tokens(500, 4));
    let again = all.open(&prompt);
    assert_eq!(again.blocks(), Blocks::new(2));
    all.verify(&again, &prompt[..8]);
    drop(again);
    // Given up under pressure, it is a miss and no other's values.
    let mut last = all.open(&tokens(700, 2));
    all.write(&mut last, &tokens(700, 2));
    assert_eq!(all.found(&prompt), 0);
}

#[test]
fn the_block_given_up_for_a_cached_one_is_nobodys_while_a_row_names_it() {
    let mut all = Fixture::new(fixed(4), 4);
    let prompt = tokens(0, 1);
    let mut request = all.open(&[]);
    let settled = all.write(&mut request, &prompt);
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.rows.set(step.on, 0, &request).unwrap();
    step.finish().unwrap().wait().unwrap();
    let twin = all.publish(&prompt);
    let own = request.share(0).unwrap().id();
    all.cache.publish(&mut request, &settled, &Content::new(all.root, &prompt)).unwrap();
    assert_ne!(request.share(0).unwrap().id(), own, "one block for both");
    assert_eq!(all.free(), 2, "the row reads the old one still");
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.rows.set(step.on, 0, &request).unwrap();
    step.finish().unwrap().wait().unwrap();
    assert_eq!(all.free(), 3);
    drop((request, twin));
    // The row of an ended request keeps what it names from others, though the cache gives it up.
    let mut rest = all.engine.bundle().kv.open(MOST);
    assert!(rest.push(Blocks::new(4)).is_err());
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.rows.clear(step.on, 0).unwrap();
    step.finish().unwrap().wait().unwrap();
    rest.push(Blocks::new(4)).unwrap();
}

#[test]
fn a_prompt_that_goes_on_alike_copies_what_is_common() {
    let mut all = Fixture::new(fixed(8), 8);
    drop(all.publish(&tokens(0, 2)));
    let other = [0, 1, 2, 3, 4, 5, 90, 91, 92];
    let content = Content::new(all.root, &other);
    let lease = all.cache.lookup(&content).unwrap();
    let (block, alike) = lease.alike(&content).unwrap();
    assert_eq!((lease.blocks(), alike), (Blocks::new(1), Tokens::new(2)));
    let mut request = lease.open(MOST);
    request.extend(Tokens::new(5)).unwrap();
    let mut step = all.engine.step(&mut all.stream).unwrap();
    step.buffers.kv.copy_from(step.on, &block, &mut request, 1).unwrap();
    let fence = step.finish().unwrap();
    drop(block);
    request.advance(alike, &fence).unwrap();
    fence.wait().unwrap();
    all.write(&mut request, &other);
    all.verify(&request, &other);
}

#[test]
fn a_window_is_released_when_its_step_is_done() {
    // Positions 128 wide, blocks of 32, position 158 in flight while the counter says 159: block 0 left the window by the counter.
    let per_block = 32;
    let fake = FakeBackend::asynchronous();
    let pool = PoolSpec::fixed(Tokens::new(per_block), PER_BLOCK as usize, Blocks::new(6));
    let mut all = Fixture::on(fake, pool, PrefixCacheSpec::new(Blocks::new(6)));
    let mut request = all.engine.bundle().kv.open(Tokens::new(6 * per_block));
    request.extend(Tokens::new(160)).unwrap();
    let mut step = all.engine.step(&mut all.stream).unwrap();
    for index in 0..5 {
        step.buffers.kv.block_mut(&mut request, index).unwrap();
    }
    let fence = step.finish().unwrap();
    request.advance(Tokens::new(159), &fence).unwrap();
    request.evict_before(Tokens::new(159 - 127));
    assert_eq!((request.blocks(), all.free()), (Blocks::new(4), 1), "left, and reached by a launch in flight");
    fence.wait().unwrap();
    assert_eq!(all.free(), 2);
}

#[test]
fn a_block_has_as_many_referents_as_names() {
    // Freed twice in one call elsewhere, it was handed out twice. Here giving up is by value, and a hole gives up nothing.
    let mut all = Fixture::new(fixed(4), 4);
    let mut request = all.open(&[]);
    all.write(&mut request, &tokens(0, 2));
    let fork = request.fork(MOST);
    for _ in 0..2 {
        request.evict(1);
        request.evict_before(Tokens::new(2 * PER_BLOCK));
        request.truncate(Blocks::ZERO);
    }
    drop(request);
    assert_eq!((fork.share(0).unwrap().referents(), all.free()), (2, 2));
    drop(fork);
    let mut rest = all.engine.bundle().kv.open(MOST);
    rest.push(Blocks::new(4)).unwrap();
    let mut ids: Vec<_> = (0..4).map(|index| rest.share(index).unwrap().id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3]);
}
