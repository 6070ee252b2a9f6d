//! States are saved with the prefixes that they are behind, and come back with them.

mod cancelled;
mod faults;

use std::sync::Arc;

use futures_executor::block_on;
use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FakeBackend, GlobalKv, Host, Limits, PoolSpec, PrefixCache,
    PrefixCacheSpec, Root, RootKey, Serving, Snapshots, Space, Stream, StreamSpec, SwaKv, Tokens, graph_captured,
};
use memtier_store::{
    Loaded, PrefixStore, Saved, StoreError, StoreSpec, Tear,
    format::{
        Damage, Manifest, SEGMENT_HEADER,
        states::{self, StateShape},
    },
};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use proptest::prelude::*;

use crate::{change, toy::prompt};

const PER_BLOCK: usize = 4;
/// Blocks of a state: the last two of its prefix.
const WINDOW: usize = 2;

#[graph_captured]
struct Memory<S: Space = Host> {
    kv: BlockPool<GlobalKv<u64>, S>,
    window: BlockPool<SwaKv<u64>, S>,
}

struct Toy {
    cache: PrefixCache<GlobalKv<u64>>,
    snapshots: Snapshots<SwaKv<u64>>,
    root: Root,
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    fake: FakeBackend<Host>,
    states: u64,
}

/// A step that does not begin, as what a store says of a device that fails.
fn device(error: memtier::StepError) -> StoreError {
    match error {
        memtier::StepError::Device(error) => StoreError::Device(error),
        other => panic!("{other}"),
    }
}

fn values(tokens: &[u32]) -> Vec<u64> {
    let mut last = 7u64;
    let value = |token: &u32| {
        last = (last ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        last
    };
    tokens.iter().map(value).collect()
}

impl Toy {
    /// Room for 32 blocks, and for `most` states.
    fn new(most: usize) -> Self {
        Self::shaped(most, PER_BLOCK)
    }

    fn shaped(most: usize, elements: usize) -> Self {
        let fake = FakeBackend::<Host>::asynchronous();
        let device = Device::new(fake.clone(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let pool = |elements, blocks| PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), elements, Blocks::new(blocks));
        let states = ((most + 1) * WINDOW) as u64;
        let spec = MemorySpec { kv: pool(PER_BLOCK, 32), window: pool(elements, states) };
        let lines = engine.declare_bundle::<Memory>(spec);
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let stream = engine.open_stream(stream).unwrap();
        let engine = engine.serve::<Memory>().unwrap();
        let cache = PrefixCache::new(&engine.bundle().kv.handle(), PrefixCacheSpec::new(Blocks::new(32))).unwrap();
        let root = cache.root(&RootKey::new("a")).unwrap();
        let snapshots = Snapshots::new(&cache, most);
        Toy { cache, snapshots, root, engine, stream, fake, states }
    }

    /// Writes, publishes and ends a request of whole blocks, and keeps the state behind it.
    fn serve(&mut self, tokens: &[u32]) {
        let (content, most) = (Content::new(self.root, tokens), Tokens::new(tokens.len() as u64));
        let mut ticket = self.cache.lookup(&content).unwrap().open(most);
        let from = ticket.blocks().count() as usize;
        ticket.extend(Tokens::new((tokens.len() - from * PER_BLOCK) as u64)).unwrap();
        let mut state = self.engine.bundle().window.open(most);
        let (values, blocks) = (values(tokens), tokens.len() / PER_BLOCK);
        let first = blocks.saturating_sub(WINDOW);
        state.skip(Blocks::new(first as u64));
        state.push(Blocks::new((blocks - first) as u64)).unwrap();
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, window } = &mut step.buffers;
        for (index, values) in values.chunks(PER_BLOCK).enumerate() {
            if index >= from {
                step.on.write(&mut kv.block_mut(&mut ticket, index).unwrap(), values).unwrap();
            }
            if index >= first {
                let mut block = window.block_mut(&mut state, index).unwrap();
                step.on.write(&mut block.range(0..PER_BLOCK).unwrap(), values).unwrap();
            }
        }
        let fence = step.finish().unwrap();
        ticket.advance(Tokens::new((tokens.len() - from * PER_BLOCK) as u64), &fence).unwrap();
        state.advance(Tokens::new(((blocks - first) * PER_BLOCK) as u64), &fence).unwrap();
        let settled = fence.wait().unwrap();
        self.cache.publish(&mut ticket, &settled, &content).unwrap();
        assert!(self.snapshots.keep(&ticket, Arc::new(state), &settled));
    }

    /// How many blocks of a prompt there is state behind; it must be right.
    fn found(&mut self, tokens: &[u32]) -> usize {
        let lease = self.cache.lookup(&Content::new(self.root, tokens)).unwrap();
        let Some((blocks, state)) = self.snapshots.find(&lease) else { return 0 };
        let blocks = blocks.count() as usize;
        assert_eq!(state.tokens(), Tokens::new((blocks * PER_BLOCK) as u64));
        let step = self.engine.step(&mut self.stream).unwrap();
        for (index, expected) in values(tokens).chunks(PER_BLOCK).enumerate().take(blocks).skip(blocks - WINDOW) {
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.window.block(&state, index).unwrap(), &mut block).unwrap();
            assert_eq!(&block[..], expected, "block {index}");
        }
        step.finish().unwrap().wait().unwrap();
        blocks
    }

    fn save(&mut self, store: &PrefixStore) -> Result<Saved, StoreError> {
        block_on(self.save_all(store))
    }

    async fn save_all(&mut self, store: &PrefixStore) -> Result<Saved, StoreError> {
        let mut saver = store.save(&self.cache)?;
        loop {
            let step = self.engine.step(&mut self.stream).map_err(device)?;
            let segment = saver.gather(step.on, &step.buffers.kv)?;
            step.finish()?.wait()?;
            let Some(segment) = segment else { break };
            saver.put(&segment).await?;
        }
        let mut states = saver.states("window", &self.snapshots)?;
        loop {
            let step = self.engine.step(&mut self.stream).map_err(device)?;
            let segment = states.gather(step.on, &step.buffers.window)?;
            step.finish()?.wait()?;
            let Some(segment) = segment else { break };
            saver.put(&segment).await?;
        }
        saver.commit().await
    }

    fn load(&mut self, store: &PrefixStore) -> Result<Loaded, StoreError> {
        let loaded = self.try_load(store);
        self.check();
        loaded
    }

    fn try_load(&mut self, store: &PrefixStore) -> Result<Loaded, StoreError> {
        block_on(self.load_all(store))
    }

    async fn load_all(&mut self, store: &PrefixStore) -> Result<Loaded, StoreError> {
        let mut loader = store.load(&self.cache).await?.unwrap();
        while loader.fetch().await? {
            let mut step = self.engine.step(&mut self.stream).map_err(device)?;
            let batch = loader.write(step.on, &mut step.buffers.kv)?;
            loader.publish(batch, &step.finish()?)?;
        }
        if let Some(mut states) = loader.states("window")? {
            while states.fetch().await? {
                let mut step = self.engine.step(&mut self.stream).map_err(device)?;
                let batch = states.write(step.on, &mut step.buffers.window, &self.snapshots)?;
                states.keep(batch, &step.finish()?, &mut self.snapshots)?;
            }
        }
        Ok(loader.finish())
    }

    fn check(&mut self) {
        self.engine.step(&mut self.stream).unwrap().finish().unwrap().wait().unwrap();
        let bundle = self.engine.bundle();
        assert_eq!(bundle.kv.free().count() + self.cache.stats().cached.count(), 32);
        assert_eq!(bundle.window.free().count() + self.snapshots.blocks().count(), self.states);
    }
}

/// Segments of one state each.
fn place() -> (Arc<InMemory>, PrefixStore) {
    let objects = Arc::new(InMemory::new());
    let spec = StoreSpec { segment: Bytes::new(64 + 164), most: Bytes::kib(64) };
    (objects.clone(), PrefixStore::new(objects, Path::from("fleet/toy"), spec))
}

fn conversations() -> [Vec<u32>; 3] {
    let system = prompt(1, 3);
    [[system.clone(), prompt(2, 2)].concat(), [system, prompt(3, 1)].concat(), prompt(4, 2)]
}

fn served() -> Toy {
    let mut toy = Toy::new(3);
    conversations().iter().for_each(|tokens| toy.serve(tokens));
    toy
}

fn found(toy: &mut Toy) -> [usize; 3] {
    conversations().map(|tokens| toy.found(&tokens))
}

fn state_segments(objects: &InMemory) -> Vec<Path> {
    use futures_util::TryStreamExt;
    let all: Vec<_> = block_on(objects.list(None).map_ok(|meta| meta.location).try_collect()).unwrap();
    let mut all: Vec<_> = all.into_iter().filter(|path: &Path| path.to_string().contains("/states/window/")).collect();
    all.sort();
    all
}

#[test]
fn states_come_back_with_their_prefixes() {
    let (objects, store) = place();
    let saved = served().save(&store).unwrap();
    assert_eq!((saved.blocks, saved.states), (Blocks::new(8), 3));
    assert_eq!(state_segments(&objects).len(), 3);
    let mut toy = Toy::new(3);
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.blocks, loaded.states, loaded.states_left_out, loaded.tear), (8, 3, 0, None));
    assert_eq!(found(&mut toy), [5, 4, 2]);
    // They are there already.
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.states, loaded.there), (0, 8));
    // One save replaces the other with all its objects.
    toy.save(&store).unwrap();
    assert_eq!(state_segments(&objects).len(), 3);
}

#[test]
fn the_latest_states_come_back_where_there_is_no_room_for_all() {
    let (_, store) = place();
    let mut toy = served();
    toy.found(&conversations()[0]);
    toy.save(&store).unwrap();
    let mut toy = Toy::new(2);
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.states, loaded.states_left_out), (2, 1));
    // The second was unused for longest. Of those that are there, the third goes first.
    assert!(toy.snapshots.evict_one());
    assert_eq!(found(&mut toy), [5, 0, 0]);
}

#[test]
fn a_load_makes_no_room_for_states() {
    let (_, store) = place();
    served().save(&store).unwrap();
    let mut toy = Toy::new(2);
    toy.serve(&prompt(9, 2));
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.states, loaded.states_left_out), (1, 2));
    assert_eq!(toy.found(&prompt(9, 2)), 2);
}

#[test]
fn states_before_a_tear_are_used() {
    let cases: [(fn(&mut Vec<u8>), Damage); 4] = [
        (|bytes| bytes.truncate(100), Damage::Short(100)),
        (|bytes| bytes[64 + 100] ^= 1, Damage::Checksum),
        (|bytes| bytes.push(0), Damage::Long(1)),
        (|bytes| bytes[60] ^= 1, Damage::Checksum),
    ];
    for (harm, damage) in cases {
        let (objects, store) = place();
        served().save(&store).unwrap();
        let second = state_segments(&objects).remove(1);
        change(&objects, &second, harm);
        let mut toy = Toy::new(3);
        let loaded = toy.load(&store).unwrap();
        // The newest is the last conversation's. What is good in the torn segment is used, too.
        let states = if damage == Damage::Long(1) { 2 } else { 1 };
        assert_eq!((loaded.blocks, loaded.states), (8, states), "{damage:?}");
        assert_eq!(loaded.tear, Some(Tear { object: second, damage }));
        assert_eq!(toy.found(&conversations()[2]), 2);
    }
    let (objects, store) = place();
    served().save(&store).unwrap();
    let first = state_segments(&objects).remove(0);
    block_on(objects.delete(&first)).unwrap();
    let loaded = Toy::new(3).load(&store).unwrap();
    assert_eq!((loaded.states, loaded.tear), (0, Some(Tear { object: first, damage: Damage::Missing })));
}

#[test]
fn a_state_of_blocks_that_are_torn_is_left_out() {
    let (objects, store) = place();
    served().save(&store).unwrap();
    use futures_util::TryStreamExt;
    let all: Vec<_> = block_on(objects.list(None).map_ok(|meta| meta.location).try_collect()).unwrap();
    let mut blocks: Vec<Path> = all.into_iter().filter(|path: &Path| !path.to_string().contains("/states/")).collect();
    blocks.retain(|path| path.filename() != Some("manifest"));
    blocks.sort();
    // All but the first conversation that was stored: one block a segment.
    change(&objects, &blocks[2], |bytes| bytes.truncate(70));
    let mut toy = Toy::new(3);
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.blocks, loaded.states, loaded.states_left_out), (2, 1, 2), "{loaded:?}");
    assert_eq!(found(&mut toy), [0, 0, 2]);
}

/// Under right checksums, so that only its size tells.
#[test]
fn a_state_that_is_larger_than_its_prefix_is_refused() {
    for (first, tokens) in [(u32::MAX - 4, 8), (1, 8), (0, 4), (0, u64::MAX)] {
        let (objects, store) = place();
        served().save(&store).unwrap();
        let path = state_segments(&objects).remove(0);
        change(&objects, &path, |bytes| {
            bytes[64 + 64..64 + 72].copy_from_slice(&u64::to_le_bytes(tokens));
            bytes[64 + 72..64 + 76].copy_from_slice(&u32::to_le_bytes(first));
            let at = bytes.len() - 4;
            let sum = crc32c::crc32c(&bytes[64..at]);
            bytes[at..].copy_from_slice(&sum.to_le_bytes());
        });
        promise_again(&objects, &path);
        let loaded = Toy::new(3).load(&store).unwrap();
        assert_eq!(loaded.states, 0);
        assert_eq!(loaded.tear, Some(Tear { object: path, damage: Damage::State }), "{first} {tokens}");
    }
}

/// Makes the manifest promise what is in the first state segment now.
fn promise_again(objects: &InMemory, segment: &Path) {
    let bytes = block_on(async { objects.get(segment).await.unwrap().bytes().await.unwrap() });
    change(objects, &Path::from("fleet/toy/manifest"), |manifest| {
        let mut decoded = Manifest::decode(manifest).unwrap();
        decoded.states[0].segments[0] = (bytes.len() as u64, crc32c::crc32c(&bytes));
        *manifest = decoded.encode();
    });
}

#[test]
fn states_of_another_layout_are_refused_by_name() {
    let (_, store) = place();
    served().save(&store).unwrap();
    let error = Toy::shaped(3, 2 * PER_BLOCK).load(&store).unwrap_err();
    assert!(matches!(error, StoreError::OtherLayout { .. }), "{error}");
    assert!(error.to_string().contains("32 bytes, and this cache's 4 tokens and 64 bytes"), "{error}");
}

#[test]
fn lists_have_names_and_are_put_whole() {
    let (_, store) = place();
    let mut toy = served();
    let mut saver = store.save(&toy.cache).unwrap();
    saver.states("window", &toy.snapshots).unwrap();
    for name in ["", "a/b", "a name that is longer than 32 bytes", "window"] {
        assert!(matches!(saver.states(name, &toy.snapshots), Err(StoreError::List { .. })), "{name}");
    }
    let mut states = saver.states("other", &toy.snapshots).unwrap();
    let step = toy.engine.step(&mut toy.stream).unwrap();
    let first = states.gather(step.on, &step.buffers.window).unwrap().unwrap();
    let second = states.gather(step.on, &step.buffers.window).unwrap().unwrap();
    step.finish().unwrap().wait().unwrap();
    assert_eq!((first.states(), first.blocks()), (1, Blocks::ZERO));
    assert!(matches!(block_on(saver.put(&second)), Err(StoreError::Order { given: 1, expected: 0 })));
    block_on(saver.put(&first)).unwrap();
    assert!(matches!(block_on(saver.commit()), Err(StoreError::Order { given: 2, expected: 1 })));
}

#[test]
fn a_save_keeps_no_state_from_making_room() {
    let (_, store) = place();
    let mut toy = served();
    let mut saver = store.save(&toy.cache).unwrap();
    let mut states = saver.states("window", &toy.snapshots).unwrap();
    while toy.snapshots.len() > 1 {
        toy.snapshots.evict_one();
    }
    toy.check();
    let step = toy.engine.step(&mut toy.stream).unwrap();
    assert_eq!(states.gather(step.on, &step.buffers.window).unwrap().unwrap().states(), 1);
    assert!(states.gather(step.on, &step.buffers.window).unwrap().is_none());
    step.finish().unwrap().wait().unwrap();
}

/// What version 1 wrote: no lists of states.
#[test]
fn saves_of_version_1_are_read() {
    let (objects, store) = place();
    let mut toy = served();
    while toy.snapshots.evict_one() {}
    toy.save(&store).unwrap();
    let path = Path::from("fleet/toy/manifest");
    let manifest = block_on(async { objects.get(&path).await.unwrap().bytes().await.unwrap() });
    let mut manifest = Manifest::decode(&manifest).unwrap();
    manifest.states.clear();
    for (ordinal, promised) in manifest.segments.iter_mut().enumerate() {
        let path = Path::from(format!("fleet/toy/saves/{}/{ordinal:08}", manifest.id));
        change(&objects, &path, |bytes| {
            bytes[8] = 1;
            let sum = crc32c::crc32c(&bytes[..SEGMENT_HEADER - 4]);
            bytes[SEGMENT_HEADER - 4..SEGMENT_HEADER].copy_from_slice(&sum.to_le_bytes());
            *promised = (bytes.len() as u64, crc32c::crc32c(bytes));
        });
    }
    let mut bytes = manifest.encode();
    // Without the number of lists, and the checksum after it.
    bytes.truncate(bytes.len() - 8);
    bytes[8] = 1;
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    change(&objects, &path, |old| *old = bytes);
    let mut toy = Toy::new(3);
    let loaded = toy.load(&store).unwrap();
    assert_eq!((loaded.blocks, loaded.states, loaded.tear), (8, 0, None));
    // What is saved next is of the present version.
    toy.serve(&conversations()[2]);
    toy.save(&store).unwrap();
    assert_eq!(Toy::new(3).load(&store).unwrap().states, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever is loaded is right (`found` looks), and the blocks are conserved (`load` looks).
    #[test]
    fn changed_states_are_right_or_none(
        which in 0..3usize,
        at in any::<prop::sample::Index>(),
        bits in any::<u8>(),
        cut in any::<bool>(),
        promise in any::<bool>(),
    ) {
        let (objects, store) = place();
        served().save(&store).unwrap();
        let path = state_segments(&objects).remove(which);
        change(&objects, &path, |bytes| match cut {
            true => bytes.truncate(at.index(bytes.len())),
            false => *at.get_mut(bytes) ^= bits,
        });
        if promise && which == 0 {
            promise_again(&objects, &path);
        }
        let mut toy = Toy::new(3);
        let loaded = toy.load(&store).unwrap();
        prop_assert!(loaded.states <= 3 && loaded.blocks == 8);
        found(&mut toy);
    }

    #[test]
    fn changed_state_segments_give_their_first_records_or_none(
        at in any::<prop::sample::Index>(),
        bits in 1..=255u8,
        cut in any::<bool>(),
    ) {
        let shape = StateShape { tokens: 4, bytes: 8 };
        let name = |index: u8| [memtier::Digest::from_bytes([index; 32]); 2];
        let id = memtier_store::format::SaveId([7; 16]);
        let mut whole = states::begin_segment(shape, id, 0);
        for index in 0..3u8 {
            let fill = |block: u32, into: &mut [u8]| {
                into.fill(block as u8 + index);
                Ok::<_, ()>(())
            };
            states::push_record(&mut whole, shape, name(index), 16, 1..2 + u32::from(index), fill).unwrap();
        }
        states::end_segment(&mut whole, 3);
        let good = states::decode_segment(&whole, shape, id, 0).unwrap();
        prop_assert_eq!((good.records.len(), good.damage), (3, None));
        let mut bytes = whole.clone();
        match cut {
            true => bytes.truncate(at.index(bytes.len())),
            false => bytes[at.index(whole.len())] ^= bits,
        }
        if let Ok(decoded) = states::decode_segment(&bytes, shape, id, 0) {
            prop_assert!(decoded.damage.is_some() && decoded.records.len() < 3);
            prop_assert_eq!(&decoded.records[..], &good.records[..decoded.records.len()]);
        }
    }
}
