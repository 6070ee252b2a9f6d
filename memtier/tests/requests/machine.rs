//! One engine, its requests, and the reference beside them.

mod cold;

use memtier::{
    BlockPool, Blocks, Bytes, Content, Device, Engine, FakeBackend, GlobalKv, Host, Limits, Pin, PinOwner, PoolSpec,
    PrefixCache, PrefixCacheSpec, Root, RootKey, Serving, Settled, Space, Stream, StreamSpec, Ticket, TierSpec,
    TieredCache, Tokens, graph_captured,
};

use crate::reference::{Name, Reference};

pub(crate) const PER_BLOCK: usize = 4;
const BLOCKS: u64 = 48;
const CACHED: u64 = 24;
/// Of the second tier. Fewer than what is cached in the first, so that it evicts, too.
const COLD: u64 = 20;
const MOST: usize = 12 * PER_BLOCK;

pub(crate) type Kv = GlobalKv<u64>;

/// The KV of a model whose values are easy to foretell.
#[graph_captured]
pub(crate) struct Memory<S: Space = Host> {
    /// One number a token.
    pub(crate) kv: BlockPool<Kv, S>,
    /// The same, of what the first tier gave up.
    pub(crate) cold: BlockPool<Kv, S>,
}

#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) kind: u8,
    pub(crate) numbers: [u16; 4],
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.kind, self.numbers)
    }
}

struct Request {
    ticket: Ticket<Kv>,
    root: u8,
    tokens: Vec<u32>,
    /// The path that it keeps in the cache.
    lease: Name,
    /// Blocks that it gave up.
    holes: Vec<usize>,
}

pub(crate) struct Machine {
    requests: Vec<Request>,
    pins: Vec<(Pin, Name)>,
    roots: Vec<Root>,
    /// The number of the next root's key, and names for forgotten roots.
    next_root: u8,
    names: Vec<u8>,
    cache: PrefixCache<Kv>,
    tiers: TieredCache<Kv>,
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    settled: Settled,
    reference: Reference,
    /// Whether requests are forked in this history: without, every block has one owner, exactly.
    forks: bool,
}

/// What a token's place holds: a function of everything before it.
fn value(before: u64, token: u32) -> u64 {
    (before ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x51
}

pub(crate) fn values(root: u8, tokens: &[u32]) -> Vec<u64> {
    let mut last = u64::from(root) + 1;
    tokens
        .iter()
        .map(|token| {
            last = value(last, *token);
            last
        })
        .collect()
}

impl Machine {
    pub(crate) fn new(forks: bool) -> Self {
        let device = Device::new(FakeBackend::<Host>::new(), Bytes::kib(64));
        let mut engine = Engine::open(&device);
        let pool = PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), PER_BLOCK, Blocks::new(BLOCKS));
        let lines = engine.declare_bundle::<Memory>(MemorySpec {
            kv: pool,
            cold: PoolSpec::fixed(Tokens::new(PER_BLOCK as u64), PER_BLOCK, Blocks::new(COLD)),
        });
        let stream = engine.declare(StreamSpec { scratch: Bytes::new(256) });
        let mut engine = engine.plan(Limits::new(Host::NAME, Bytes::kib(64))).unwrap().carve(lines).unwrap();
        let mut stream = engine.open_stream(stream).unwrap();
        let mut engine = engine.serve::<Memory>().unwrap();
        let settled = engine.step(&mut stream).unwrap().finish().unwrap().wait().unwrap();
        let spec = PrefixCacheSpec { roots: 6, pinned: Blocks::new(8), ..PrefixCacheSpec::new(Blocks::new(CACHED)) };
        let cache = PrefixCache::new(&engine.bundle().kv.handle(), spec).unwrap();
        cache.set_pin_budget(PinOwner(1), Blocks::new(8)).unwrap();
        let cold = PrefixCacheSpec { roots: 6, ..PrefixCacheSpec::new(Blocks::new(COLD)) };
        let cold = PrefixCache::new(&engine.bundle().cold.handle(), cold).unwrap();
        let spec = TierSpec { paths: 4, longest: Tokens::new(MOST as u64) };
        let tiers = TieredCache::new(cache.clone(), cold, spec).unwrap();
        let roots = (0..2).map(|root: u8| tiers.root(&RootKey::new([root])).unwrap()).collect();
        Machine {
            requests: Vec::new(),
            pins: Vec::new(),
            roots,
            next_root: 2,
            names: vec![0, 1],
            cache,
            tiers,
            engine,
            stream,
            settled,
            reference: Reference::default(),
            forks,
        }
    }

    pub(crate) fn apply(&mut self, op: Op) {
        let [a, b, c, d] = op.numbers;
        let [a, b] = [usize::from(a), usize::from(b)];
        match op.kind {
            0..25 => self.open(a, b, u64::from(c) << 16 | u64::from(d)),
            25..45 => self.decode(a, u32::from(c) % 2),
            45..60 => self.publish(a),
            60..70 => self.cancel(a),
            70..76 => self.fork(a),
            76..81 => self.evict(b % 6),
            81..85 => self.rewind(a, b % (2 * PER_BLOCK)),
            85..88 => self.release_window(a, b % 3),
            88..92 => self.pin(a),
            92..96 => self.unpin(a),
            96..98 => self.too_much(a),
            98 => self.forget(a),
            100..107 => self.spill(b % 9),
            107..110 => self.settle(),
            _ => self.check_all(),
        }
        self.check();
    }

    /// A prompt that shares a random part with others: tokens are one of two, so prefixes meet.
    fn prompt(&self, length: usize, bits: u64) -> Vec<u32> {
        (0..length as u64).map(|index| (bits >> (index / PER_BLOCK as u64 % 32) & 1) as u32).collect()
    }

    fn name(root: u8, tokens: &[u32], blocks: usize) -> Name {
        (root, tokens[..blocks * PER_BLOCK].to_vec())
    }

    fn open(&mut self, a: usize, b: usize, bits: u64) {
        let (index, length) = (a % self.roots.len(), 1 + b % (MOST - 8));
        let (root, name) = (self.roots[index], self.names[index]);
        let tokens = self.prompt(length, bits);
        let lease = self.cache.lookup(&Content::new(root, &tokens)).unwrap();
        let hit = lease.blocks().count() as usize;
        let full = length / PER_BLOCK;
        let expected =
            (1..=full).take_while(|blocks| self.reference.is_cached(&Self::name(name, &tokens, *blocks))).count();
        assert_eq!(hit, expected, "blocks found");
        let mut ticket = lease.open(Tokens::new(MOST as u64));
        assert_eq!(ticket.tokens().count() as usize, hit * PER_BLOCK);
        let lease = Self::name(name, &tokens, hit);
        self.reference.begin(&lease);
        let hit = hit + if a.is_multiple_of(3) { 0 } else { self.restore(root, &mut ticket, &tokens) };
        if !self.make_room(&mut ticket, (length - hit * PER_BLOCK) as u64) {
            drop(ticket);
            self.reference.end(&lease);
            return;
        }
        self.write(name, &mut ticket, &tokens, hit * PER_BLOCK);
        self.requests.push(Request { ticket, root: name, tokens, lease, holes: Vec::new() });
        if self.requests.len() > 12 {
            self.cancel(a);
        }
    }

    /// Extends a ticket; the reference gives up what the cache gives up. All or nothing.
    fn make_room(&mut self, ticket: &mut Ticket<Kv>, more: u64) -> bool {
        let held = ticket.capacity().count() / PER_BLOCK as u64;
        let needed = (ticket.tokens().count() + more).div_ceil(PER_BLOCK as u64).saturating_sub(held);
        let free = self.engine.bundle().kv.free().count();
        let before = (ticket.blocks(), ticket.tokens());
        let cached = self.cache.stats().cached.count();
        let result = ticket.extend(Tokens::new(more));
        let gone = cached - self.cache.stats().cached.count();
        for _ in 0..gone {
            self.reference.evict().unwrap();
        }
        match result {
            Ok(()) => {
                assert!(gone <= needed.saturating_sub(free) || self.forks, "{gone} evicted for {needed}");
                true
            }
            Err(_) => {
                assert_eq!((ticket.blocks(), ticket.tokens()), before, "nothing was taken");
                assert!(needed > free);
                false
            }
        }
    }

    /// Writes the tokens from `from` on, and says so.
    fn write(&mut self, root: u8, ticket: &mut Ticket<Kv>, tokens: &[u32], from: usize) {
        if from == tokens.len() {
            return;
        }
        let values = values(root, tokens);
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let kv = &mut step.buffers.kv;
        for index in from / PER_BLOCK..tokens.len().div_ceil(PER_BLOCK) {
            let range = index * PER_BLOCK..tokens.len().min((index + 1) * PER_BLOCK);
            let mut block = kv.block_mut(ticket, index).unwrap();
            // Only the new ones: the others must be there already.
            let first = range.start.max(from) - range.start;
            let mut part = block.range(first..range.len()).unwrap();
            step.on.write(&mut part, &values[range.start + first..range.end]).unwrap();
        }
        let fence = step.finish().unwrap();
        ticket.advance(Tokens::new((tokens.len() - from) as u64), &fence).unwrap();
        self.settled = fence.wait().unwrap();
    }

    fn pick(&self, a: usize) -> Option<usize> {
        (!self.requests.is_empty()).then(|| a % self.requests.len())
    }

    fn decode(&mut self, a: usize, token: u32) {
        let Some(index) = self.pick(a) else { return };
        let mut request = self.requests.swap_remove(index);
        let at = request.tokens.len();
        if at < MOST && self.make_room(&mut request.ticket, 1) && self.own(&mut request, at / PER_BLOCK) {
            request.tokens.push(token);
            self.write(request.root, &mut request.ticket, &request.tokens, at);
        }
        self.requests.push(request);
    }

    /// Copies the block before it is written, where somebody else has it, too.
    fn own(&mut self, request: &mut Request, index: usize) -> bool {
        let cached = self.cache.stats().cached.count();
        let mut step = self.engine.step(&mut self.stream).unwrap();
        let owned = step.buffers.kv.own(step.on, &mut request.ticket, index);
        self.settled = step.finish().unwrap().wait().unwrap();
        (self.cache.stats().cached.count()..cached).for_each(|_| drop(self.reference.evict().unwrap()));
        if owned.is_ok() && index * PER_BLOCK < request.lease.1.len() {
            // The cached tail is its own from here on.
            let lease = Self::name(request.lease.0, &request.tokens, index);
            self.reference.begin(&lease);
            self.reference.end(&request.lease);
            request.lease = lease;
        }
        owned.is_ok()
    }

    fn publish(&mut self, a: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &mut self.requests[index];
        let Some(root) = self.names.iter().position(|name| *name == request.root).map(|index| self.roots[index]) else {
            return;
        };
        let before = request.lease.1.len() / PER_BLOCK;
        let cached = self.cache.stats();
        let content = Content::new(root, &request.tokens);
        let tokens = self.cache.publish(&mut request.ticket, &self.settled, &content).unwrap();
        let after = tokens.count() as usize / PER_BLOCK;
        let full = request.tokens.len() / PER_BLOCK;
        let hole = request.holes.iter().copied().min().unwrap_or(full);
        assert!(after >= before && after <= full.min(hole).max(before));
        // Room is made for each block that is new, one at a time, as the reference does.
        let evicted = self.cache.stats().evicted - cached.evicted;
        for blocks in before + 1..=after {
            let name = Self::name(request.root, &request.tokens, blocks);
            if !self.reference.is_cached(&name) && self.reference.cached() as u64 == CACHED {
                self.reference.evict().unwrap();
            }
            self.reference.insert(name.clone());
            self.reference.moved(&request.lease, &name);
            request.lease = name;
        }
        if after < full.min(hole) {
            assert_eq!(self.reference.idle(), 0, "there was room ({evicted} evicted)");
        }
    }

    fn cancel(&mut self, a: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = self.requests.swap_remove(index);
        self.verify(&request);
        drop(request.ticket);
        self.reference.end(&request.lease);
    }

    fn fork(&mut self, a: usize) {
        let Some(index) = self.pick(a).filter(|_| self.forks && self.requests.len() < 12) else { return };
        let request = &self.requests[index];
        let ticket = request.ticket.fork(Tokens::new(MOST as u64));
        let (root, tokens, lease, holes) =
            (request.root, request.tokens.clone(), request.lease.clone(), request.holes.clone());
        self.reference.begin(&lease);
        self.requests.push(Request { ticket, root, tokens, lease, holes });
    }

    fn evict(&mut self, count: usize) {
        let evicted = self.cache.evict(Blocks::new(count as u64)).count();
        let expected = (0..count).take_while(|_| self.reference.evict().is_some()).count();
        assert_eq!(evicted as usize, expected);
    }

    fn rewind(&mut self, a: usize, tokens: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &mut self.requests[index];
        let left = request.tokens.len().saturating_sub(tokens);
        request.ticket.rewind(Tokens::new(tokens as u64)).unwrap();
        request.tokens.truncate(left);
        let keep = left.div_ceil(PER_BLOCK);
        request.ticket.truncate(Blocks::new(keep as u64));
        request.holes.retain(|hole| *hole < keep);
        if request.lease.1.len() > keep * PER_BLOCK {
            let lease = (request.lease.0, request.lease.1[..keep * PER_BLOCK].to_vec());
            let old = std::mem::replace(&mut request.lease, lease.clone());
            self.reference.begin(&lease);
            self.reference.end(&old);
        }
        // What it still has is not written again while the cache has it: decoding owns it first.
        let request = &mut self.requests[index];
        if left < request.lease.1.len() {
            let mut request = self.requests.swap_remove(index);
            if !self.own(&mut request, left / PER_BLOCK) {
                drop(request.ticket);
                self.reference.end(&request.lease);
                return;
            }
            self.requests.push(request);
        }
    }

    fn release_window(&mut self, a: usize, which: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &mut self.requests[index];
        let blocks = request.tokens.len() / PER_BLOCK;
        if blocks < 3 {
            return;
        }
        // The middle goes, as in streaming attention; sinks and recent tokens stay.
        let hole = 1 + which % (blocks - 2);
        request.ticket.evict(hole);
        if !request.holes.contains(&hole) {
            request.holes.push(hole);
        }
    }

    fn pin(&mut self, a: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &self.requests[index];
        let Some(root) = self.names.iter().position(|name| *name == request.root).map(|index| self.roots[index]) else {
            return;
        };
        let (tokens, name) = (request.tokens.clone(), request.root);
        let lease = self.cache.lookup(&Content::new(root, &tokens)).unwrap();
        let path = Self::name(name, &tokens, lease.blocks().count() as usize);
        self.reference.begin(&path);
        let used: u64 = self.pins.iter().map(|(pin, _)| pin.blocks().count()).sum();
        match self.cache.pin(PinOwner(1), &lease) {
            Ok(pin) => {
                assert!(used + pin.blocks().count() <= 8);
                self.reference.begin(&path);
                self.pins.push((pin, path.clone()));
            }
            Err(_) => assert!(used + lease.blocks().count() > 8),
        }
        drop(lease);
        self.reference.end(&path);
    }

    fn unpin(&mut self, a: usize) {
        if !self.pins.is_empty() {
            let (pin, path) = self.pins.swap_remove(a % self.pins.len());
            drop(pin);
            self.reference.end(&path);
        }
    }

    /// More than there is: refused, and nothing is lost.
    fn too_much(&mut self, a: usize) {
        let Some(index) = self.pick(a) else { return };
        let mut request = self.requests.swap_remove(index);
        assert!(!self.make_room(&mut request.ticket, 4 * BLOCKS * PER_BLOCK as u64));
        self.requests.push(request);
    }

    /// An adapter changes: its blocks are found by nobody again.
    fn forget(&mut self, a: usize) {
        let index = a % self.roots.len();
        let (root, name) = (self.roots[index], self.names[index]);
        self.tiers.forget(root).unwrap();
        assert!(self.cache.lookup(&Content::new(root, &[1; 8])).is_err());
        self.reference.forget(name, 200u8.wrapping_add(self.next_root));
        let as_root = 200u8.wrapping_add(self.next_root);
        for request in self.requests.iter_mut().filter(|request| request.root == name) {
            request.lease.0 = as_root;
        }
        self.pins.iter_mut().filter(|(_, path)| path.0 == name).for_each(|(_, path)| path.0 = as_root);
        // The values of requests stay those of their own root.
        match self.tiers.root(&RootKey::new([self.next_root])) {
            Ok(root) => {
                (self.roots[index], self.names[index]) = (root, self.next_root);
                self.next_root = (self.next_root + 1) % 50;
            }
            Err(_) => {
                // Forgotten ones are still in use: all go, so that there is room again.
                while !self.requests.is_empty() {
                    self.cancel(0);
                }
                while !self.pins.is_empty() {
                    self.unpin(0);
                }
                self.evict(usize::from(u16::MAX));
                self.roots[index] = self.tiers.root(&RootKey::new([self.next_root])).unwrap();
                self.names[index] = self.next_root;
                self.next_root = (self.next_root + 1) % 50;
            }
        }
    }

    fn verify(&mut self, request: &Request) {
        let values = values(request.root, &request.tokens);
        let step = self.engine.step(&mut self.stream).unwrap();
        for index in 0..request.tokens.len().div_ceil(PER_BLOCK) {
            if request.holes.contains(&index) {
                assert!(step.buffers.kv.block(&request.ticket, index).is_err());
                continue;
            }
            let mut block = [0; PER_BLOCK];
            step.on.read(step.buffers.kv.block(&request.ticket, index).unwrap(), &mut block).unwrap();
            let expected = &values[index * PER_BLOCK..values.len().min((index + 1) * PER_BLOCK)];
            assert_eq!(&block[..expected.len()], expected, "block {index}");
        }
        self.settled = step.finish().unwrap().wait().unwrap();
    }

    fn check_all(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        requests.iter().for_each(|request| self.verify(request));
        self.requests = requests;
    }

    /// Conservation: every block is free, cached, or a request's.
    fn check(&self) {
        let stats = self.cache.stats();
        assert_eq!(stats.cached.count() as usize, self.reference.cached(), "cached");
        assert_eq!(stats.reclaimable.count() as usize, self.reference.idle(), "reclaimable");
        // What requests hold beside the cache.
        let own = |request: &Request| {
            let first = request.lease.1.len() / PER_BLOCK;
            (first..MOST / PER_BLOCK).filter_map(|index| Some(request.ticket.share(index)?.id())).collect::<Vec<_>>()
        };
        let mut own: Vec<_> = self.requests.iter().flat_map(own).collect();
        let all = own.len();
        own.sort_unstable();
        own.dedup();
        let (own, cached) = (own.len() as u64, stats.cached.count());
        let held = BLOCKS - self.engine.bundle().kv.free().count();
        self.check_cold();
        match self.forks {
            // Each block has one owner.
            false => assert_eq!((held, all as u64), (cached + own, own), "blocks held"),
            // A fork may hold what another published.
            true => assert!(held >= cached.max(own) && held <= cached + own, "{held} held, {cached} cached, {own} own"),
        }
    }

    pub(crate) fn finish(mut self) {
        self.check_all();
        self.settle();
        while !self.requests.is_empty() {
            self.cancel(0);
            self.check();
        }
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        self.evict(usize::from(u16::MAX));
        assert_eq!(self.engine.bundle().kv.free(), Blocks::new(BLOCKS), "all blocks are back");
        self.tiers.cold().evict(Blocks::new(COLD));
        assert_eq!(self.engine.bundle().cold.free(), Blocks::new(COLD), "all blocks of the second tier are back");
    }
}
