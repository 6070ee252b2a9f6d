//! One engine, its requests, and the reference beside them.

mod check;
mod cold;
mod faults;
mod parts;
mod persist;
mod prompt;

use memtier::{
    BlockPool, BlockRef, Blocks, Engine, FakeBackend, Fence, GlobalKv, Host, Pin, PinOwner, PrefixCache, Root, RootKey,
    Serving, Settled, Space, Stream, Ticket, TieredCache, Tokens, graph_captured,
};
use memtier_store::PrefixStore;

use prompt::Prompt;

use crate::{
    reference::{Name, Reference},
    tally::Tally,
};

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
    /// What it says: see [`Prompt`].
    tokens: Vec<u32>,
    /// The path that it keeps in the cache.
    lease: Name,
    /// Blocks that it gave up.
    holes: Vec<usize>,
}

pub(crate) struct Machine {
    requests: Vec<Request>,
    pins: Vec<(Pin, Name)>,
    /// Single blocks that somebody has.
    held: Vec<BlockRef<Kv>>,
    roots: Vec<Root>,
    /// The number of the next root's key, and names for forgotten roots.
    next_root: u8,
    names: Vec<u8>,
    cache: PrefixCache<Kv>,
    tiers: TieredCache<Kv>,
    engine: Engine<Serving<Memory>>,
    stream: Stream<Host>,
    fake: FakeBackend<Host>,
    settled: Settled,
    store: PrefixStore,
    /// What the latest save has, those before others first.
    saved: Vec<Name>,
    reference: Reference,
    tally: Tally,
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
    pub(crate) fn apply(&mut self, op: Op) {
        self.tally.operations += 1;
        let [a, b, c, d] = op.numbers;
        let [a, b] = [usize::from(a), usize::from(b)];
        match op.kind {
            0..25 => self.open(a, b, u64::from(c) << 16 | u64::from(d)),
            25..45 => self.decode(a, u32::from(c)),
            45..60 => self.publish(a),
            60..70 => self.cancel(a),
            70..76 => self.fork(a),
            76..81 => self.evict(b % 6),
            81..85 => self.rewind(a, b % (2 * PER_BLOCK)),
            85..87 => self.release_middle(a, b % 3),
            87..90 => self.release_window(a, b % 12),
            90..93 => self.pin(a),
            93..96 => self.unpin(a),
            96..98 => self.too_much(a),
            98 => self.forget(a),
            100..107 => self.spill(b % 9),
            107..110 => self.settle(),
            110..112 => self.persist(),
            112..115 => self.reload(),
            115 => self.restart(),
            116..122 => self.fail(a, b, u64::from(c) << 16 | u64::from(d)),
            122..125 => self.hold(a, b),
            125..128 => self.let_go(a),
            _ => self.check_all(),
        }
        self.check();
    }

    fn name(root: u8, tokens: &[u32], blocks: usize) -> Name {
        (root, tokens[..blocks * PER_BLOCK].to_vec())
    }

    fn open(&mut self, a: usize, b: usize, bits: u64) {
        let (index, length) = (a % self.roots.len(), 1 + b % (MOST - 8));
        let (root, name) = (self.roots[index], self.names[index]);
        let tokens = prompt::random(length, bits);
        let lease = self.cache.lookup(&Prompt::new(&tokens).content(root)).unwrap();
        let hit = lease.blocks().count() as usize;
        let full = length / PER_BLOCK;
        let expected =
            (1..=full).take_while(|blocks| self.reference.is_cached(&Self::name(name, &tokens, *blocks))).count();
        assert_eq!(hit, expected, "blocks found");
        self.tally.found += hit as u64;
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
        self.tally.evicted += gone;
        self.tally.refused += u64::from(result.is_err());
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
        self.try_write(root, ticket, tokens, from).unwrap();
    }

    /// The same, where the device may fail.
    fn try_write(
        &mut self,
        root: u8,
        ticket: &mut Ticket<Kv>,
        tokens: &[u32],
        from: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if from == tokens.len() {
            return Ok(());
        }
        let values = values(root, tokens);
        let mut step = self.engine.step(&mut self.stream)?;
        let kv = &mut step.buffers.kv;
        for index in from / PER_BLOCK..tokens.len().div_ceil(PER_BLOCK) {
            let range = index * PER_BLOCK..tokens.len().min((index + 1) * PER_BLOCK);
            let mut block = kv.block_mut(ticket, index)?;
            // Only the new ones: the others must be there already.
            let first = range.start.max(from) - range.start;
            let mut part = block.range(first..range.len()).ok_or("tokens of the block")?;
            step.on.write(&mut part, &values[range.start + first..range.end])?;
        }
        let fence: Fence = step.finish()?;
        ticket.advance(Tokens::new((tokens.len() - from) as u64), &fence)?;
        self.settled = fence.wait()?;
        Ok(())
    }

    fn pick(&self, a: usize) -> Option<usize> {
        (!self.requests.is_empty()).then(|| a % self.requests.len())
    }

    fn decode(&mut self, a: usize, token: u32) {
        let Some(index) = self.pick(a) else { return };
        let mut request = self.requests.swap_remove(index);
        let at = request.tokens.len();
        if at < MOST && self.make_room(&mut request.ticket, 1) && self.own(&mut request, at / PER_BLOCK) {
            request.tokens.push(prompt::symbol(token));
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
        let prompt = Prompt::new(&request.tokens);
        let tokens = self.cache.publish(&mut request.ticket, &self.settled, &prompt.content(root)).unwrap();
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
        self.tally.published += (after - before) as u64;
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
        self.tally.cancelled += 1;
    }

    fn fork(&mut self, a: usize) {
        let Some(index) = self.pick(a).filter(|_| self.forks && self.requests.len() < 12) else { return };
        let request = &self.requests[index];
        let ticket = request.ticket.fork(Tokens::new(MOST as u64));
        let (root, tokens, lease, holes) =
            (request.root, request.tokens.clone(), request.lease.clone(), request.holes.clone());
        self.reference.begin(&lease);
        self.requests.push(Request { ticket, root, tokens, lease, holes });
        self.tally.forks += 1;
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
        self.tally.rewinds += 1;
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

    /// The middle goes, as in streaming attention; sinks and recent tokens stay.
    fn release_middle(&mut self, a: usize, which: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &mut self.requests[index];
        let blocks = request.tokens.len() / PER_BLOCK;
        if blocks < 3 {
            return;
        }
        let hole = 1 + which % (blocks - 2);
        request.ticket.evict(hole);
        if !request.holes.contains(&hole) {
            request.holes.push(hole);
        }
    }

    /// What is before a sliding window goes. It stops at a hole: what is before one has gone, where only windows move.
    fn release_window(&mut self, a: usize, blocks: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &mut self.requests[index];
        let start = (blocks * PER_BLOCK + a % PER_BLOCK).min(request.tokens.len());
        request.ticket.evict_before(Tokens::new(start as u64));
        let gone: Vec<_> = (0..start / PER_BLOCK).rev().take_while(|block| !request.holes.contains(block)).collect();
        self.tally.windows += gone.len() as u64;
        request.holes.extend(gone);
    }

    fn pin(&mut self, a: usize) {
        let Some(index) = self.pick(a) else { return };
        let request = &self.requests[index];
        let Some(root) = self.names.iter().position(|name| *name == request.root).map(|index| self.roots[index]) else {
            return;
        };
        let (tokens, name) = (request.tokens.clone(), request.root);
        let lease = self.cache.lookup(&Prompt::new(&tokens).content(root)).unwrap();
        let path = Self::name(name, &tokens, lease.blocks().count() as usize);
        self.reference.begin(&path);
        let used: u64 = self.pins.iter().map(|(pin, _)| pin.blocks().count()).sum();
        match self.cache.pin(PinOwner(1), &lease) {
            Ok(pin) => {
                assert!(used + pin.blocks().count() <= 8);
                self.reference.begin(&path);
                self.pins.push((pin, path.clone()));
                self.tally.pins += 1;
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
        assert!(self.cache.lookup(&Prompt::new(&[1; 8]).content(root)).is_err());
        self.tally.forgotten += 1;
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
}
