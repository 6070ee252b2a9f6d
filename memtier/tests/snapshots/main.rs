//! Copies of in-place state in two tiers: they follow their prefixes there, and come back with them.

mod faults;
mod histories;
mod recurrent;
mod toy;

use memtier::{Blocks, SnapshotSpec, TierError, Tokens};

use toy::{PER_BLOCK, Sizes, Toy, prompt};

/// A prompt that was served, spilled, and given up in the first tier, with its copy.
fn spilled(toy: &mut Toy, tokens: &[u32]) {
    toy.serve(tokens).unwrap();
    assert_eq!(toy.spill(8).unwrap(), 1);
    toy.give_up();
}

#[test]
fn state_comes_back_with_its_prefix() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 5);
    spilled(&mut toy, &tokens);
    // The last token is computed in any case, so its block is.
    let found = toy.serve(&tokens).unwrap();
    assert_eq!((found.blocks, found.is_cold), (4, true));
    assert_eq!(toy.snapshots.stats().restored, 1);
    // Now both are near again.
    let found = toy.serve(&tokens).unwrap();
    assert_eq!((found.blocks, found.is_cold), (4, false));
}

#[test]
fn what_the_second_tier_has_is_not_copied_again() {
    let mut toy = Toy::new(Sizes { cold_states: 2, ..Sizes::default() });
    let [a, b, c] = [1, 2, 3].map(|first| prompt(first, 3));
    spilled(&mut toy, &a);
    spilled(&mut toy, &b);
    // `a` comes back, and counts as used in the second tier without another copy: `b` makes room.
    toy.serve(&a).unwrap();
    assert_eq!(toy.spill(8).unwrap(), 0);
    assert_eq!((toy.snapshots.stats().spilled, toy.snapshots.is_behind()), (2, false));
    toy.give_up();
    spilled(&mut toy, &c);
    toy.give_up();
    assert_eq!([&a, &b, &c].map(|tokens| toy.find(tokens).unwrap().is_some()), [true, false, true]);
}

#[test]
fn without_a_second_tier_what_is_given_up_is_gone() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 5);
    toy.serve(&tokens).unwrap();
    toy.give_up();
    assert_eq!(toy.serve(&tokens).unwrap().blocks, 0);
}

#[test]
fn the_longest_of_both_tiers_is_found() {
    let mut toy = Toy::new(Sizes::default());
    let long = [prompt(1, 4), prompt(2, 3)].concat();
    spilled(&mut toy, &long);
    // The beginning is near, with a state of its own; the whole is far, and longer.
    toy.serve(&prompt(1, 4)[..3 * PER_BLOCK + 1]).unwrap();
    let found = toy.serve(&long).unwrap();
    assert_eq!((found.blocks, found.is_cold), (6, true));
    // What is as long and near is not brought from far.
    let found = toy.serve(&long).unwrap();
    assert_eq!((found.blocks, found.is_cold), (6, false));
}

#[test]
fn a_prefix_without_its_state_starts_nobody() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 5);
    spilled(&mut toy, &tokens);
    while toy.snapshots.cold_mut().evict_one() {}
    assert_eq!(toy.serve(&tokens).unwrap().blocks, 0);
}

#[test]
fn state_without_its_prefix_is_not_found_and_goes_first() {
    let mut toy = Toy::new(Sizes { cold_states: 2, ..Sizes::default() });
    let [a, b, c] = [1, 2, 3].map(|first| prompt(first, 3));
    spilled(&mut toy, &a);
    spilled(&mut toy, &b);
    toy.serve(&a).unwrap();
    toy.give_up();
    // `b` is unused for longest, but `a` has no prefix any more: its copy makes room for that of `c`.
    toy.serve(&b).unwrap();
    toy.tiers.cold().evict(Blocks::new(2));
    toy.give_up();
    assert_eq!(toy.serve(&a).unwrap().blocks, 0);
    toy.give_up();
    spilled(&mut toy, &c);
    let found = toy.serve(&b).unwrap();
    assert_eq!((found.blocks, found.is_cold), (2, true), "{:?}", toy.snapshots.stats());
}

#[test]
fn state_is_not_found_behind_what_took_its_prefixs_place() {
    for keep in [3, 2] {
        let mut toy = Toy::new(Sizes::default());
        toy.serve(&prompt(1, 5)).unwrap();
        let start = prompt(1, keep);
        // The end of the prefix goes: by itself, or where another request's lease cut it off.
        drop(toy.tiers.lookup(&memtier::Content::new(toy.root, &start)).unwrap());
        assert_eq!(toy.tiers.hot().evict(Blocks::new(4 - keep as u64)).count(), 4 - keep as u64);
        let other = [start, prompt(2, 5 - keep)].concat();
        assert_eq!(toy.serve(&other).unwrap().blocks, 0, "the state is of another prompt");
        assert_eq!(toy.snapshots.stats().hot, 2);
        assert_eq!(toy.serve(&other).unwrap().blocks, 4, "now it has its own");
    }
    // The same where no lease was at the cut.
    let mut toy = Toy::new(Sizes::default());
    toy.serve(&prompt(1, 5)).unwrap();
    toy.tiers.hot().evict(Blocks::new(1));
    let other = [prompt(1, 3), prompt(2, 2)].concat();
    assert_eq!(toy.serve(&other).unwrap().blocks, 0);
    assert_eq!(toy.serve(&other).unwrap().blocks, 4);
}

#[test]
fn a_full_second_tier_gives_up_what_is_unused_for_longest() {
    // Two copies, or blocks for two.
    for sizes in [Sizes { cold_states: 2, ..Sizes::default() }, Sizes { cold_window: 4, ..Sizes::default() }] {
        let mut toy = Toy::new(sizes);
        let all = [1, 2, 3].map(|first| prompt(first, 3));
        all.iter().for_each(|tokens| spilled(&mut toy, tokens));
        assert_eq!(toy.snapshots.stats().cold, 2);
        let found = all.map(|tokens| {
            toy.give_up();
            toy.serve(&tokens).unwrap().blocks
        });
        assert_eq!(found, [0, 2, 2]);
    }
}

#[test]
fn a_second_tier_without_room_keeps_nothing_and_loses_nothing() {
    // Room for two blocks of prefixes, or for one block of state.
    for sizes in [Sizes { cold: 2, ..Sizes::default() }, Sizes { cold_window: 1, ..Sizes::default() }] {
        let mut toy = Toy::new(sizes);
        let tokens = prompt(1, 6);
        toy.serve(&tokens).unwrap();
        assert_eq!(toy.spill(8).unwrap(), 0);
        assert!(!toy.snapshots.is_behind(), "it is not tried again and again");
        let found = toy.serve(&tokens).unwrap();
        assert_eq!((found.blocks, found.is_cold), (5, false), "it is still near");
        toy.give_up();
        assert_eq!(toy.serve(&tokens).unwrap().blocks, 0);
    }
}

#[test]
fn state_is_found_only_after_its_copy_is_settled() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 4);
    toy.serve(&tokens).unwrap();
    let early = toy.wait();
    assert_eq!(toy.send(8).unwrap(), 1);
    assert_eq!(toy.snapshots.stats().moving, 1);
    toy.tiers.settle(&early).unwrap();
    assert_eq!(toy.snapshots.settle(&toy.tiers, &early).unwrap(), 0);
    toy.give_up();
    assert_eq!(toy.serve(&tokens).unwrap().blocks, 0);
    toy.give_up();
    toy.arrive().unwrap();
    assert_eq!(toy.serve(&tokens).unwrap().blocks, 3);
}

#[test]
fn state_whose_prefix_does_not_arrive_is_given_up() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 4);
    toy.serve(&tokens).unwrap();
    assert_eq!(toy.send(8).unwrap(), 1);
    let root = toy.root;
    toy.tiers.forget(root).unwrap();
    toy.arrive().unwrap();
    assert_eq!(toy.snapshots.stats().cold, 0);
    toy.root_again();
    assert_eq!(toy.serve(&tokens).unwrap().blocks, 0);
}

#[test]
fn a_found_state_keeps_its_prefix_in_the_second_tier() {
    let mut toy = Toy::new(Sizes::default());
    let tokens = prompt(1, 5);
    spilled(&mut toy, &tokens);
    let found = toy.find(&tokens).unwrap().unwrap();
    assert!(found.is_cold());
    assert_eq!(toy.tiers.cold().evict(Blocks::new(100)), Blocks::ZERO);
    // The copies may go meanwhile; the state is the request's.
    while toy.snapshots.cold_mut().evict_one() {}
    assert_eq!(toy.open(&tokens, Some(found)).unwrap().1.blocks, 4);
    toy.check();
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let mut toy = Toy::new(Sizes::default());
    let spec = SnapshotSpec { hot: 1, cold: 1, moving: 0, longest: Tokens::new(64) };
    let second = toy.engine.bundle().cold_window.handle();
    let refused = memtier::TieredSnapshots::new(&toy.tiers, &second, spec).err();
    assert!(matches!(refused, Some(TierError::Nothing { paths: 0, .. })), "{refused:?}");
    toy.serve(&prompt(1, 3)).unwrap();
    let mut step = toy.engine.step(&mut toy.stream).unwrap();
    let toy::MemoryView { kv, cold, window, cold_window, .. } = &mut step.buffers;
    let swapped = toy.snapshots.spill(step.on, &mut toy.tiers, (kv, cold), (cold_window, window), 1).err();
    assert_eq!(swapped, Some(TierError::ForeignPool { tier: "second" }));
    let swapped = toy.snapshots.spill(step.on, &mut toy.tiers, (cold, kv), (window, cold_window), 1).err();
    assert_eq!(swapped, Some(TierError::ForeignPool { tier: "first" }));
    drop(step);
    toy.check();
}
