//! Two tiers, case by case: swaps, order, shared beginnings, and what does not fit.

use memtier::{
    AcquireBlocksError, Blocks, Bytes, Content, Device, Engine, FakeBackend, Host, Limits, PoolSpec, PrefixCache,
    PrefixCacheSpec, Root, RootKey, Serving, Settled, Space, Stream, StreamSpec, Ticket, TierError, TierSpec,
    TieredCache, Tokens,
};

use crate::machine::{Kv, Memory, MemorySpec, MemoryView, PER_BLOCK, values};

struct Two {
    tiers: TieredCache<Kv>,
    root: Root,
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    blocks: [u64; 2],
}

impl Two {
    fn new(hot: u64, cold: u64) -> Self {
        let device = Device::new(FakeBackend::<Host>::asynchronous(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let pool = |blocks| PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), PER_BLOCK, Blocks::new(blocks));
        let lines = engine.declare_bundle::<Memory>(MemorySpec { kv: pool(hot), cold: pool(cold) });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let stream = engine.open_stream(stream).unwrap();
        let engine = engine.serve::<Memory>().unwrap();
        let spec = |blocks| PrefixCacheSpec::new(Blocks::new(blocks));
        let first = PrefixCache::new(&engine.bundle().kv.handle(), spec(hot)).unwrap();
        let second = PrefixCache::new(&engine.bundle().cold.handle(), spec(cold)).unwrap();
        let spec = TierSpec { paths: 8, longest: Tokens::new(64 * PER_BLOCK as u64) };
        let tiers = TieredCache::new(first, second, spec).unwrap();
        let root = tiers.root(&RootKey::new("model")).unwrap();
        Two { tiers, root, engine, stream, blocks: [hot, cold] }
    }

    /// A request with these tokens, written from where both tiers end, and how many came from each.
    fn open(&mut self, tokens: &[u32]) -> Result<(Ticket<Kv>, [usize; 2], Settled), TierError> {
        let content = Content::new(self.root, tokens);
        let mut ticket = self.tiers.lookup(&content)?.open(Tokens::new(tokens.len() as u64));
        let hot = ticket.blocks().count() as usize;
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        let restored = self.tiers.restore(step.on, kv, cold, &mut ticket, &content)?;
        let known = ticket.tokens().count() as usize + restored.count() as usize;
        ticket.push(Blocks::new(
            tokens.len().div_ceil(PER_BLOCK) as u64 - ticket.capacity().count() / PER_BLOCK as u64,
        ))?;
        let values = values(0, tokens);
        for index in known / PER_BLOCK..tokens.len().div_ceil(PER_BLOCK) {
            let part = &values[index * PER_BLOCK..values.len().min((index + 1) * PER_BLOCK)];
            step.on.write(&mut kv.block_mut(&mut ticket, index)?, part)?;
        }
        let fence = step.finish()?;
        ticket.advance(Tokens::new(tokens.len() as u64 - ticket.tokens().count()), &fence)?;
        let settled = fence.wait().unwrap();
        self.verify(&ticket, &values);
        self.check(ticket.blocks().count() - hot as u64);
        Ok((ticket, [hot, restored.count() as usize / PER_BLOCK], settled))
    }

    /// Writes, publishes and ends a request. How many blocks came from each tier.
    fn serve(&mut self, tokens: &[u32]) -> [usize; 2] {
        let (mut ticket, found, settled) = self.open(tokens).unwrap();
        self.tiers.hot().publish(&mut ticket, &settled, &Content::new(self.root, tokens)).unwrap();
        drop(ticket);
        self.check(0);
        found
    }

    fn spill(&mut self, most: u64) -> u64 {
        let blocks = self.send(most);
        let settled = self.wait();
        assert_eq!(self.tiers.settle(&settled).unwrap().count(), blocks);
        self.check(0);
        blocks
    }

    fn send(&mut self, most: u64) -> u64 {
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let MemoryView { kv, cold, .. } = &mut step.buffers;
        let blocks = self.tiers.spill(step.on, kv, cold, Blocks::new(most)).unwrap();
        self.tiers.sent(&step.finish().unwrap()).unwrap();
        self.check(0);
        blocks.count()
    }

    /// Proof that everything launched so far is done.
    fn wait(&mut self) -> Settled {
        self.engine.step(&mut self.stream).unwrap().finish().unwrap().wait().unwrap()
    }

    fn verify(&mut self, ticket: &Ticket<Kv>, values: &[u64]) {
        let step = self.engine.step(&mut self.stream).unwrap();
        for (index, expected) in values.chunks(PER_BLOCK).enumerate() {
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.kv.block(ticket, index).unwrap(), &mut block).unwrap();
            assert_eq!(&block[..expected.len()], expected, "block {index}");
        }
        step.finish().unwrap().wait().unwrap();
    }

    /// Each tier by its own books: free, cached, and held by whoever holds some.
    fn check(&self, held: u64) {
        let (stats, bundle) = (self.tiers.stats(), self.engine.bundle());
        assert_eq!(bundle.kv.free().count() + stats.hot.cached.count() + held, self.blocks[0], "{stats:?}");
        assert_eq!(bundle.cold.free().count() + stats.cold.cached.count() + stats.moving.count(), self.blocks[1]);
    }
}

fn prompt(first: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * PER_BLOCK) as u32).map(|index| first * 1000 + index).collect()
}

/// M4: one primary and one host block, and two prompts that take turns in both.
#[test]
fn one_block_a_tier_swapped_back_and_forth_conserves_both() {
    let mut two = Two::new(1, 1);
    let (a, b) = (prompt(1, 1), prompt(2, 1));
    assert_eq!(two.serve(&a), [0, 0]);
    assert_eq!(two.spill(1), 1);
    // It is there already.
    assert_eq!(two.spill(1), 0);
    for _ in 0..100 {
        // `b` takes the primary block of `a`, which is in the second tier; then `a` takes it back, and `b`, which was not spilled, is gone.
        assert_eq!(two.serve(&b), [0, 0]);
        assert_eq!(two.serve(&a), [0, 1]);
        assert_eq!(two.serve(&a), [1, 0]);
    }
    for _ in 0..100 {
        // Now the second tier's block changes hands, too.
        assert_eq!(two.serve(&b), [0, 0]);
        assert_eq!(two.spill(1), 1);
        assert_eq!(two.serve(&a), [0, 0], "its only copy made room");
        assert_eq!(two.serve(&b), [0, 1]);
        assert_eq!(two.serve(&a), [0, 0]);
        assert_eq!(two.spill(1), 1);
    }
    // Evicted behind the tiers' back, and while a request holds the only primary block.
    let (ticket, ..) = two.open(&a).unwrap();
    let refused = two.open(&b).err();
    assert!(matches!(refused, Some(TierError::Full(AcquireBlocksError::Full { .. }))), "{refused:?}");
    drop(ticket);
    assert_eq!(two.tiers.hot().evict(Blocks::new(1)), Blocks::new(1));
    assert_eq!(two.tiers.cold().evict(Blocks::new(1)), Blocks::new(1));
    two.check(0);
    assert_eq!(two.serve(&a), [0, 0]);
}

#[test]
fn what_was_unused_for_longest_is_spilled_first_and_its_order_does_not_change() {
    let mut two = Two::new(6, 6);
    (1..=3).for_each(|first| assert_eq!(two.serve(&prompt(first, 2)), [0, 0]));
    two.serve(&prompt(1, 2));
    // 2, 3, 1.
    assert_eq!(two.spill(2), 2);
    let cold = |two: &Two, first| two.tiers.found_cold(&Content::new(two.root, &prompt(first, 2))).unwrap().count();
    assert_eq!([1, 2, 3].map(|first| cold(&two, first)), [0, 2, 0]);
    // The beginning of the next, then the rest.
    assert_eq!(two.spill(1), 1);
    assert_eq!(cold(&two, 3), 1);
    assert_eq!(two.spill(1), 1);
    assert_eq!([1, 2, 3].map(|first| cold(&two, first)), [0, 2, 2]);
    // The first tier still gives up what it would have.
    two.tiers.hot().evict(Blocks::new(4));
    assert_eq!(two.serve(&prompt(1, 2)), [2, 0]);
    assert_eq!(two.serve(&prompt(2, 2)), [0, 2]);
}

#[test]
fn a_shared_beginning_is_copied_once() {
    let mut two = Two::new(16, 16);
    let system = prompt(9, 4);
    for user in 1..=3 {
        two.serve(&[system.clone(), prompt(user, 1)].concat());
    }
    // The second and the third wait for what they share with the first.
    assert_eq!(two.spill(100), 5);
    assert_eq!(two.spill(100), 2);
    assert_eq!(two.spill(100), 0);
    assert_eq!(two.tiers.stats().cold.cached, Blocks::new(7));
    two.tiers.hot().evict(Blocks::new(16));
    assert_eq!(two.serve(&[system.clone(), prompt(2, 1)].concat()), [0, 5]);
    assert_eq!(two.serve(&[system, prompt(3, 1)].concat()), [4, 1]);
}

#[test]
fn blocks_are_found_only_after_their_copy_is_settled() {
    let mut two = Two::new(4, 4);
    let a = prompt(1, 2);
    two.serve(&a);
    assert_eq!(two.send(4), 2);
    assert_eq!(two.tiers.found_cold(&Content::new(two.root, &a)).unwrap(), Blocks::ZERO);
    assert_eq!(two.tiers.stats().moving, Blocks::new(2));
    // Not again, while they are on their way.
    assert_eq!(two.send(4), 0);
    let settled = two.wait();
    assert_eq!(two.tiers.settle(&settled).unwrap(), Blocks::new(2));
    assert_eq!(two.tiers.found_cold(&Content::new(two.root, &a)).unwrap(), Blocks::new(2));
}

#[test]
fn a_block_that_is_being_copied_is_not_handed_out() {
    let mut two = Two::new(2, 2);
    let (a, b) = (prompt(1, 2), prompt(2, 2));
    two.serve(&a);
    // Launched, and not waited for.
    assert_eq!(two.send(2), 2);
    let mut ticket = two.engine.bundle().kv.open(Tokens::new(8));
    let refused = ticket.extend(Tokens::new(8)).err();
    assert!(matches!(refused, Some(AcquireBlocksError::Full { .. })), "{refused:?}");
    // When the copy is done, they can be had, and written.
    let settled = two.wait();
    assert_eq!(two.serve(&b), [0, 0]);
    assert_eq!(two.tiers.settle(&settled).unwrap(), Blocks::new(2));
    assert_eq!(two.serve(&a), [0, 2]);
}

/// M9: the request is gone before what it waits for arrives.
#[test]
fn a_request_that_ends_while_it_is_restored_gives_everything_back_with_the_fence() {
    let mut two = Two::new(2, 2);
    let a = prompt(1, 2);
    two.serve(&a);
    two.spill(2);
    two.tiers.hot().evict(Blocks::new(2));
    let content = Content::new(two.root, &a);
    let mut ticket = two.tiers.lookup(&content).unwrap().open(Tokens::new(8));
    let mut step = two.engine.step(&mut two.stream).unwrap();
    let MemoryView { kv, cold, .. } = &mut step.buffers;
    assert_eq!(two.tiers.restore(step.on, kv, cold, &mut ticket, &content), Ok(Tokens::new(8)));
    drop(ticket);
    let fence = step.finish().unwrap();
    // The copies may be in flight, so neither end of them is anybody's.
    two.tiers.cold().evict(Blocks::new(2));
    let free = |two: &Two| [two.engine.bundle().kv.free(), two.engine.bundle().cold.free()];
    assert_eq!(free(&two), [Blocks::ZERO; 2]);
    let refused = two.engine.bundle().kv.acquire().err();
    assert!(matches!(refused, Some(AcquireBlocksError::Full { .. })), "{refused:?}");
    fence.wait().unwrap();
    assert_eq!(free(&two), [Blocks::new(2); 2]);
    assert_eq!(two.serve(&a), [0, 0], "what nobody waited for is published by nobody");
}

#[test]
fn copies_that_a_fence_does_not_cover_stay_on_their_way() {
    let mut two = Two::new(4, 4);
    let early = two.wait();
    let a = prompt(1, 2);
    two.serve(&a);
    assert_eq!(two.send(4), 2);
    assert_eq!(two.tiers.settle(&early).unwrap(), Blocks::ZERO);
    assert_eq!(two.tiers.stats().moving, Blocks::new(2));
    two.check(0);
}

#[test]
fn a_path_that_is_longer_than_the_second_tier_keeps_its_beginning() {
    let mut two = Two::new(8, 3);
    let a = prompt(1, 5);
    two.serve(&a);
    assert_eq!(two.spill(8), 3);
    assert_eq!(two.spill(8), 0);
    two.tiers.hot().evict(Blocks::new(8));
    assert_eq!(two.serve(&a), [0, 3]);
}

/// However many paths are in use, one call looks at some of them, and the next one goes on.
#[test]
fn a_search_for_the_coldest_path_is_bounded() {
    let mut two = Two::new(1200, 4);
    let all: Vec<_> = (0..1101).map(|first| prompt(first, 1)).collect();
    all.iter().for_each(|tokens| assert_eq!(two.serve(tokens), [0, 0]));
    let in_use = all[..1100].iter().map(|tokens| two.tiers.lookup(&Content::new(two.root, tokens)).unwrap());
    let leases: Vec<_> = in_use.collect();
    assert_eq!(two.send(4), 0, "not found yet");
    assert_eq!(two.send(4), 1);
    let settled = two.wait();
    assert_eq!(two.tiers.settle(&settled), Ok(Blocks::new(1)));
    drop(leases);
    assert_eq!(two.spill(4), 4, "those that are not in use any more");
}

#[test]
fn a_forgotten_root_is_forgotten_in_both() {
    let mut two = Two::new(4, 4);
    let a = prompt(1, 2);
    two.serve(&a);
    two.spill(1);
    // One on its way.
    assert_eq!(two.send(1), 1);
    let old = two.root;
    two.tiers.forget(old).unwrap();
    two.wait();
    two.check(0);
    assert!(two.tiers.lookup(&Content::new(old, &a)).is_err());
    two.root = two.tiers.root(&RootKey::new("model")).unwrap();
    assert_eq!(two.serve(&a), [0, 0]);
    assert_eq!(two.tiers.stats().cold.cached, Blocks::ZERO);
}

#[test]
fn tiers_that_do_not_fit_together_are_refused() {
    let two = Two::new(2, 2);
    let spec = TierSpec { paths: 1, longest: Tokens::new(PER_BLOCK as u64) };
    let (hot, cold) = (two.tiers.hot().clone(), two.tiers.cold().clone());
    let refused = TieredCache::new(hot.clone(), hot.clone(), spec).err();
    assert_eq!(refused, Some(TierError::OneTier));
    let none = TierSpec { paths: 0, ..spec };
    assert!(matches!(TieredCache::new(hot, cold, none).err(), Some(TierError::Nothing { .. })));
}

#[test]
fn pools_in_the_wrong_order_are_refused() {
    let mut two = Two::new(2, 2);
    let mut step = two.engine.step(&mut two.stream).unwrap();
    let MemoryView { kv, cold, .. } = &mut step.buffers;
    let refused = two.tiers.spill(step.on, cold, kv, Blocks::new(1)).err();
    assert_eq!(refused, Some(TierError::ForeignPool { tier: "first" }));
}
