//! What is saved comes back, and nothing else does.

mod hostile;
mod late;
mod states;
mod toy;

use std::sync::Arc;

use futures_executor::block_on;
use memtier::{BlockError, Blocks, Bytes, Extra};
use memtier_store::{
    PrefixStore, StoreError, StoreSpec, Tear,
    format::{Damage, VERSION},
};
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory, path::Path};
use proptest::prelude::*;

use toy::{PER_BLOCK, Toy, prompt};

/// Segments of about three blocks.
const SMALL: StoreSpec = StoreSpec { segment: Bytes::new(64 + 3 * 164), most: Bytes::kib(64) };

fn place() -> (Arc<InMemory>, PrefixStore) {
    let objects = Arc::new(InMemory::new());
    (objects.clone(), PrefixStore::new(objects, Path::from("fleet/toy"), SMALL))
}

/// A shared beginning, two that follow it, and another.
fn conversations() -> [Vec<u32>; 3] {
    let system = prompt(1, 3);
    [[system.clone(), prompt(2, 2)].concat(), [system, prompt(3, 1)].concat(), prompt(4, 2)]
}

fn served(blocks: u64) -> Toy {
    let mut toy = Toy::new(blocks);
    conversations().iter().for_each(|tokens| assert!(toy.serve("a", tokens, &[]) < 4));
    toy
}

fn segments(objects: &InMemory) -> Vec<Path> {
    use futures_util::TryStreamExt;
    let all: Vec<_> = block_on(objects.list(None).map_ok(|meta| meta.location).try_collect()).unwrap();
    let mut all: Vec<_> = all.into_iter().filter(|path: &Path| path.filename() != Some("manifest")).collect();
    all.sort();
    all
}

fn change(objects: &InMemory, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = block_on(async { objects.get(path).await.unwrap().bytes().await.unwrap().to_vec() });
    change(&mut bytes);
    block_on(objects.put(path, bytes.into())).unwrap();
}

fn hits(toy: &mut Toy) -> [usize; 3] {
    conversations().map(|tokens| toy.found("a", &tokens, &[]))
}

/// A new engine, with the root of model `a`.
fn empty(blocks: u64) -> Toy {
    let toy = Toy::new(blocks);
    toy.root("a");
    toy
}

#[test]
fn a_folder_keeps_what_was_cached() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let store = PrefixStore::new(objects, Path::from("toy"), StoreSpec::default());
    let saved = served(16).save(&store).unwrap();
    assert_eq!((saved.blocks, saved.segments), (Blocks::new(8), 1));
    let mut toy = empty(16);
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.tear), (8, None));
    assert_eq!(hits(&mut toy), [5, 4, 2]);
}

#[test]
fn several_segments_are_as_good_as_one() {
    let (objects, store) = place();
    assert_eq!(served(16).save(&store).unwrap().segments, 3);
    assert_eq!(segments(&objects).len(), 3);
    let mut toy = empty(16);
    assert_eq!(toy.load(&store).unwrap().unwrap().blocks, 8);
    assert_eq!(hits(&mut toy), [5, 4, 2]);
}

#[test]
fn nothing_is_no_error() {
    let (_, store) = place();
    assert_eq!(empty(4).load(&store).unwrap(), None);
    // Nor is a save of nothing.
    empty(4).save(&store).unwrap();
    assert_eq!(empty(4).load(&store).unwrap().unwrap().blocks, 0);
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let (_, store) = place();
    let mut toy = served(16);
    toy.save(&store).unwrap();
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.there), (0, 8));
}

#[test]
fn images_and_adapters_are_told_apart() {
    let (_, store) = place();
    let tokens = prompt(1, 3);
    let image = |digest| [Extra { token: 5, digest }];
    let mut toy = Toy::new(32);
    toy.serve("a", &tokens, &[]);
    toy.serve("a", &tokens, &image(7));
    toy.serve("b", &tokens, &image(7));
    toy.save(&store).unwrap();
    let mut toy = empty(32);
    // `b` has no root here.
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.foreign), (5, 3));
    assert_eq!([toy.found("a", &tokens, &[]), toy.found("a", &tokens, &image(7))], [3, 3]);
    assert_eq!([toy.found("a", &tokens, &image(8)), toy.found("b", &tokens, &image(7))], [1, 0]);
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.there), (3, 5));
    assert_eq!(toy.found("b", &tokens, &image(7)), 3);
}

#[test]
fn other_models_layouts_and_versions_are_refused_by_name() {
    let (objects, store) = place();
    served(16).save(&store).unwrap();
    let toy = |per_block, elements| {
        let toy = Toy::shaped(8, per_block, elements);
        toy.root("a");
        toy
    };
    let error = toy(8, 8).load(&store).unwrap_err();
    assert!(matches!(error, StoreError::OtherLayout { .. }), "{error}");
    assert!(error.to_string().contains("4 tokens and 32 bytes, and this cache's 8 tokens and 64 bytes"), "{error}");
    let error = toy(4, 8).load(&store).unwrap_err();
    assert!(matches!(error, StoreError::OtherLayout { .. }), "{error}");
    let other = Toy::new(8);
    other.root("b");
    let mut other = other;
    let error = other.load(&store).unwrap_err();
    assert!(matches!(error, StoreError::OtherModel { blocks, .. } if blocks == Blocks::new(8)), "{error}");
    change(&objects, &Path::from("fleet/toy/manifest"), |bytes| bytes[8] = 9);
    let error = empty(16).load(&store).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { damage: Damage::Version(9), .. }), "{error}");
    assert!(error.to_string().contains("version 9") && error.to_string().contains(&VERSION.to_string()), "{error}");
}

#[test]
fn everything_before_a_tear_is_used() {
    // Of segments of three, three and two blocks: the newest conversation is first.
    let cases: [(&str, fn(&mut Vec<u8>), u64, Damage); 4] = [
        ("cut in a block", |bytes| bytes.truncate(64 + 132 + 40), 4, Damage::Short(64 + 132 + 40)),
        ("cut in the header", |bytes| bytes.truncate(50), 3, Damage::Short(50)),
        ("a bit of a block", |bytes| bytes[64 + 2 * 164 - 10] ^= 4, 4, Damage::Checksum),
        ("something behind it", |bytes| bytes.push(0), 6, Damage::Long(1)),
    ];
    for (what, tear, blocks, damage) in cases {
        let (objects, store) = place();
        served(16).save(&store).unwrap();
        let second = segments(&objects).remove(1);
        change(&objects, &second, tear);
        let mut toy = empty(16);
        let loaded = toy.load(&store).unwrap().unwrap();
        assert_eq!(loaded.tear, Some(Tear { object: second, damage }), "{what}");
        assert_eq!(loaded.blocks, blocks, "{what}");
        hits(&mut toy);
    }
    let (objects, store) = place();
    served(16).save(&store).unwrap();
    let second = segments(&objects).remove(1);
    block_on(objects.delete(&second)).unwrap();
    let loaded = empty(16).load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.tear), (3, Some(Tear { object: second, damage: Damage::Missing })));
}

#[test]
fn a_segment_of_another_save_is_no_part_of_this_one() {
    let (objects, store) = place();
    let (others, other) = place();
    served(16).save(&store).unwrap();
    served(16).save(&other).unwrap();
    let second = segments(&others).remove(1);
    let foreign = block_on(async { others.get(&second).await.unwrap().bytes().await.unwrap() });
    change(&objects, &segments(&objects)[1], |bytes| *bytes = foreign.to_vec());
    let loaded = empty(16).load(&store).unwrap().unwrap();
    assert_eq!(loaded.blocks, 3);
    assert_eq!(loaded.tear.map(|tear| tear.damage), Some(Damage::Place));
}

#[test]
fn a_save_without_its_manifest_is_used_when_there_is_no_other() {
    let (objects, store) = place();
    served(16).save(&store).unwrap();
    block_on(objects.delete(&Path::from("fleet/toy/manifest"))).unwrap();
    let last = segments(&objects).pop().unwrap();
    block_on(objects.delete(&last)).unwrap();
    let mut toy = empty(16);
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.tear), (6, None));
    hits(&mut toy);
}

#[test]
fn until_the_manifest_is_there_the_save_before_counts_and_then_it_is_gone() {
    let (objects, store) = place();
    served(16).save(&store).unwrap();
    let mut toy = served(16);
    toy.serve("a", &prompt(9, 2), &[]);
    // One that does not come to its end.
    let mut saver = store.save(&toy.cache).unwrap();
    let step = toy.engine.step(&mut toy.stream).unwrap();
    let segment = saver.gather(step.on, &step.buffers.kv).unwrap().unwrap();
    step.finish().unwrap().wait().unwrap();
    block_on(saver.put(&segment)).unwrap();
    assert!(matches!(block_on(saver.put(&segment)), Err(StoreError::Order { given: 0, expected: 1 })));
    drop(saver);
    assert_eq!(empty(16).load(&store).unwrap().unwrap().blocks, 8);
    assert_eq!(segments(&objects).len(), 4);
    assert_eq!(block_on(store.sweep()).unwrap(), 1);
    assert_eq!(segments(&objects).len(), 3);
    // One that does.
    assert_eq!(toy.save(&store).unwrap().blocks, Blocks::new(10));
    assert_eq!(segments(&objects).len(), 4);
    assert_eq!(empty(16).load(&store).unwrap().unwrap().blocks, 10);
}

#[test]
fn a_segment_that_was_gathered_and_not_put_is_not_committed() {
    let (_, store) = place();
    let mut toy = served(16);
    let mut saver = store.save(&toy.cache).unwrap();
    let step = toy.engine.step(&mut toy.stream).unwrap();
    saver.gather(step.on, &step.buffers.kv).unwrap().unwrap();
    step.finish().unwrap().wait().unwrap();
    assert!(matches!(block_on(saver.commit()), Err(StoreError::Order { .. })));
    assert_eq!(empty(16).load(&store).unwrap().map(|loaded| loaded.blocks), None);
}

#[test]
fn what_is_evicted_during_a_save_is_left_out_and_the_pool_is_not_held() {
    let (_, store) = place();
    let mut toy = served(8);
    let mut saver = store.save(&toy.cache).unwrap();
    let step = toy.engine.step(&mut toy.stream).unwrap();
    let first = saver.gather(step.on, &step.buffers.kv).unwrap().unwrap();
    step.finish().unwrap().wait().unwrap();
    // The pool is full; a save does not keep anybody from a block. Eight of eight: everything cached goes.
    assert_eq!(toy.serve("a", &prompt(9, 8), &[]), 0);
    let step = toy.engine.step(&mut toy.stream).unwrap();
    assert!(saver.gather(step.on, &step.buffers.kv).unwrap().is_none());
    step.finish().unwrap().wait().unwrap();
    block_on(saver.put(&first)).unwrap();
    assert_eq!(block_on(saver.commit()).unwrap().blocks, Blocks::new(3));
    let mut toy = empty(16);
    assert_eq!(toy.load(&store).unwrap().unwrap().blocks, 3);
    hits(&mut toy);
}

#[test]
fn a_load_takes_free_blocks_only() {
    let (_, store) = place();
    served(16).save(&store).unwrap();
    let mut toy = Toy::new(6);
    toy.serve("a", &prompt(9, 2), &[]);
    let loaded = toy.load(&store).unwrap().unwrap();
    assert_eq!((loaded.blocks, loaded.left_out), (4, 4));
    assert_eq!(toy.found("a", &prompt(9, 2), &[]), 2);
    hits(&mut toy);
}

#[test]
fn views_of_another_pool_are_refused() {
    let (_, store) = place();
    let mut toy = served(16);
    let mut saver = store.save(&toy.cache).unwrap();
    toy.save(&store).unwrap();
    let mut other = empty(16);
    let mut step = other.engine.step(&mut other.stream).unwrap();
    let refused = saver.gather(step.on, &step.buffers.kv).unwrap_err();
    assert!(matches!(refused, StoreError::View(BlockError::ForeignTicket)), "{refused}");
    let fresh = empty(16);
    let mut loader = block_on(store.load(&fresh.cache)).unwrap().unwrap();
    assert!(block_on(loader.fetch()).unwrap());
    let refused = loader.write(step.on, &mut step.buffers.kv).unwrap_err();
    assert!(matches!(refused, StoreError::View(BlockError::ForeignTicket)), "{refused}");
    step.finish().unwrap().wait().unwrap();
    fresh.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Requests, evictions, and every now and then another process: what is cached there is what was cached here.
    #[test]
    fn random_histories_survive_saving_and_loading(
        ops in proptest::collection::vec((0..10u8, 1..9usize, any::<u32>()), 1..60)
    ) {
        let (_, store) = place();
        let mut toy = empty(24);
        let mut served: Vec<Vec<u32>> = Vec::new();
        for (kind, length, bits) in ops {
            match kind {
                0..7 => {
                    let tokens = |index: usize| bits >> (index / PER_BLOCK) & 1;
                    let tokens: Vec<_> = (0..length * PER_BLOCK - bits as usize % PER_BLOCK).map(tokens).collect();
                    toy.serve("a", &tokens, &[]);
                    served.push(tokens);
                }
                7 => drop(toy.cache.evict(Blocks::new(length as u64))),
                _ => {
                    let before: Vec<_> = served.iter().map(|tokens| toy.found("a", tokens, &[])).collect();
                    let cached = toy.cache.stats().cached;
                    prop_assert_eq!(toy.save(&store).unwrap().blocks, cached);
                    toy = empty(24);
                    let loaded = toy.load(&store).unwrap().unwrap();
                    prop_assert_eq!((loaded.blocks, &loaded.tear), (cached.count(), &None));
                    let after: Vec<_> = served.iter().map(|tokens| toy.found("a", tokens, &[])).collect();
                    prop_assert_eq!(before, after);
                }
            }
        }
    }
}
