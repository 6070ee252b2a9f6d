//! Runs: blocks that were published behind each other are one entry of the books, however they are found, pinned and given up later.

use std::sync::Arc;

use memtier::{Blocks, CacheEvent, Content, Extra, FakeBackend, PinOwner, PrefixCacheSpec, Snapshots, Tokens};

use crate::fixture::{Fixture, MOST, PER_BLOCK, fixed, tokens};

/// `start` blocks of one prompt, then `rest` of another.
fn branch(start: u64, rest: u64, number: u32) -> Vec<u32> {
    [tokens(0, start), tokens(number * 1000, rest)].concat()
}

#[test]
fn a_prompt_that_leaves_a_run_at_any_block_shares_what_is_before() {
    for shared in 0..=6 {
        let mut all = Fixture::new(fixed(32), 32);
        let trunk = tokens(0, 6);
        drop(all.publish(&trunk));
        let other = branch(shared, 3, 1);
        assert_eq!(all.found(&other), shared);
        let request = all.publish(&other);
        all.verify(&request, &other);
        drop(request);
        assert_eq!((all.found(&trunk), all.found(&other), all.cached()), (6, shared + 3, 9));
        // One token earlier is one block less.
        assert_eq!(all.found(&trunk[..trunk.len() - 1]), 5);
        let whole = all.open(&trunk);
        all.verify(&whole, &trunk);
        drop(whole);
        // Used in this order: the other one, the trunk. So all of the other's own blocks go first, from its end on.
        drop((all.open(&other), all.open(&trunk)));
        for left in (0..3).rev() {
            all.cache.evict(Blocks::new(1));
            assert_eq!((all.cached(), all.free()), (6 + left, 26 - left));
        }
        assert_eq!((all.found(&other), all.found(&trunk)), (shared, 6));
        all.cache.evict(Blocks::new(4));
        assert_eq!((all.found(&trunk), all.free()), (2, 30));
    }
}

#[test]
fn the_end_of_a_run_goes_first_and_what_is_left_is_found() {
    let mut all = Fixture::new(fixed(16), 16);
    let (one, two) = (tokens(0, 5), tokens(500, 5));
    drop((all.publish(&one), all.publish(&two)));
    // Used in the order of publication: of the first, three blocks go, and its beginning stays.
    assert_eq!(all.cache.evict(Blocks::new(3)), Blocks::new(3));
    assert_eq!((all.found(&one), all.found(&two)), (2, 5));
    // That was a use of both, so now the rest of the first goes, then the second's end.
    assert_eq!(all.cache.evict(Blocks::new(3)), Blocks::new(3));
    assert_eq!((all.found(&one), all.found(&two)), (0, 4));
    // What went is published again, behind what is there and anew.
    drop((all.publish(&one), all.publish(&two)));
    assert_eq!((all.found(&one), all.found(&two), all.cached()), (5, 5, 10));
    assert_eq!(all.cache.evict(Blocks::new(99)), Blocks::new(10));
    assert_eq!(all.free(), 16);
}

#[test]
fn an_answer_that_grows_block_by_block_is_one_path() {
    let mut all = Fixture::new(fixed(64), 64);
    let prompt = tokens(0, 20);
    let mut request = all.publish(&prompt[..PER_BLOCK as usize]);
    let mut reader = None;
    for blocks in 2..=20 {
        let tokens = &prompt[..blocks * PER_BLOCK as usize];
        let settled = all.write(&mut request, tokens);
        all.cache.publish(&mut request, &settled, &Content::new(all.root, tokens)).unwrap();
        assert_eq!((all.cached(), all.found(&prompt)), (blocks as u64, blocks as u64));
        if blocks == 7 {
            // Somebody stays on what was there then, while it grows on.
            reader = Some(all.open(&prompt));
        }
    }
    let reader = reader.unwrap();
    assert_eq!(reader.blocks(), Blocks::new(7));
    drop(request);
    // What the reader needs stays, and nothing else.
    assert_eq!(all.cache.evict(Blocks::new(99)), Blocks::new(13));
    all.verify(&reader, &prompt[..7 * PER_BLOCK as usize]);
    drop(reader);
    assert_eq!(all.cache.evict(Blocks::new(99)), Blocks::new(7));
}

#[test]
fn a_pin_in_the_middle_of_a_run_keeps_what_is_before_it() {
    let mut all = Fixture::new(fixed(16), 16);
    let prompt = tokens(0, 8);
    drop(all.publish(&prompt));
    all.cache.set_pin_budget(PinOwner(1), Blocks::new(8)).unwrap();
    let lease = all.cache.lookup(&Content::new(all.root, &prompt[..3 * PER_BLOCK as usize + 1])).unwrap();
    let pin = all.cache.pin(PinOwner(1), &lease).unwrap();
    drop(lease);
    assert_eq!(pin.blocks(), Blocks::new(3));
    assert_eq!(all.cache.evict(Blocks::new(99)), Blocks::new(5));
    assert_eq!(all.found(&prompt), 3);
    drop(pin);
    assert_eq!(all.cache.evict(Blocks::new(99)), Blocks::new(3));
}

#[test]
fn what_is_in_a_block_besides_tokens_ends_a_match_in_the_middle_of_a_run() {
    let mut all = Fixture::new(fixed(32), 32);
    let prompt = tokens(0, 6);
    let image = |digest| [Extra { token: 2 * PER_BLOCK as usize + 1, digest }];
    let (cat, dog) = (image(1), image(2));
    let found = |all: &Fixture, extras: &[Extra]| {
        let content = Content { root: all.root, tokens: &prompt, extras };
        all.cache.lookup(&content).unwrap().blocks().count()
    };
    let publish = |all: &mut Fixture, extras: &[Extra]| {
        let content = Content { root: all.root, tokens: &prompt, extras };
        let mut request = all.cache.lookup(&content).unwrap().open(MOST);
        let settled = all.write(&mut request, &prompt);
        all.cache.publish(&mut request, &settled, &content).unwrap();
    };
    publish(&mut all, &cat);
    assert_eq!([found(&all, &cat), found(&all, &dog), found(&all, &[])], [6, 2, 2]);
    publish(&mut all, &[]);
    publish(&mut all, &dog);
    assert_eq!([found(&all, &cat), found(&all, &dog), found(&all, &[])], [6, 6, 6]);
    assert_eq!(all.cached(), 2 + 3 * 4, "what is before the image is shared");
    // Two blocks with images, of which the second differs.
    let last = |digest| [cat[0], Extra { token: 5 * PER_BLOCK as usize, digest }];
    publish(&mut all, &last(7));
    assert_eq!([found(&all, &last(7)), found(&all, &last(8)), found(&all, &cat)], [6, 5, 6]);
}

#[test]
fn copies_of_state_are_found_by_their_block_however_runs_are_cut_and_grow() {
    let mut all = Fixture::new(fixed(64), 32);
    let mut copies = Snapshots::new(&all.cache, 4);
    let prompt = tokens(0, 9);
    let at = |blocks: usize| &prompt[..blocks * PER_BLOCK as usize];
    let state = |all: &mut Fixture| {
        let mut state = all.engine.bundle().kv.handle().open(MOST);
        let settled = all.write(&mut state, &tokens(70, 1));
        (Arc::new(state), settled)
    };
    let mut request = all.publish(at(3));
    let (three, settled) = state(&mut all);
    assert!(copies.keep(&request, three, &settled) && copies.has(&request));
    // The run grows beyond it, and is cut before it.
    let settled = all.write(&mut request, at(9));
    all.cache.publish(&mut request, &settled, &Content::new(all.root, at(9))).unwrap();
    assert!(!copies.has(&request));
    let (nine, settled) = state(&mut all);
    assert!(copies.keep(&request, nine, &settled));
    let depth = |all: &Fixture, copies: &mut Snapshots<_>, blocks: usize| {
        let lease = all.cache.lookup(&Content::new(all.root, at(blocks))).unwrap();
        copies.find(&lease).map(|(depth, _)| depth.count())
    };
    for blocks in [2, 6, 9, 3, 8, 5] {
        let expected = if blocks == 9 { Some(9) } else { (blocks >= 3).then_some(3) };
        assert_eq!(depth(&all, &mut copies, blocks), expected, "{blocks} blocks");
    }
    drop(request);
    // The last block goes, and another one comes into its place in the books.
    all.cache.evict(Blocks::new(1));
    let other = [at(8), &tokens(90, 1)[..]].concat();
    drop(all.publish(&other));
    let lease = all.cache.lookup(&Content::new(all.root, &other)).unwrap();
    assert_eq!((lease.blocks(), copies.find(&lease).map(|(depth, _)| depth)), (Blocks::new(9), Some(Blocks::new(3))));
    // The one that is found by nobody goes first.
    assert!(copies.evict_one());
    assert_eq!(copies.tokens().collect::<Vec<_>>(), [Tokens::new(3 * PER_BLOCK)]);
}

#[test]
fn every_block_is_exported_once_behind_its_parent() {
    let spec = PrefixCacheSpec { events: 100, ..PrefixCacheSpec::new(Blocks::new(64)) };
    let mut all = Fixture::on(FakeBackend::new(), fixed(64), spec);
    for prompt in [branch(9, 0, 0), branch(4, 3, 1), branch(6, 2, 2), branch(4, 5, 3), tokens(7000, 2)] {
        drop(all.publish(&prompt));
    }
    let mut stored = Vec::new();
    let lost = all.cache.events(|event| {
        if let CacheEvent::Stored { block, parent } = event {
            stored.push((block, parent));
        }
    });
    let mut exported = Vec::new();
    let mut export = all.cache.export();
    while let Some(block) = export.next_block() {
        assert_eq!(block.digest, block.parent.child(0, block.tokens));
        let is_known = exported.iter().any(|(digest, _)| *digest == block.parent);
        assert!(block.parent == block.root || is_known, "the parent comes first");
        exported.push((block.digest, block.parent));
    }
    assert_eq!((lost, exported.len() as u64), (0, all.cached()));
    stored.sort_unstable();
    exported.sort_unstable();
    assert_eq!(stored, exported, "events and the export name the same");
}
