//! Prefixes: found, published, and given up for others, at several sizes of the cache.
//!
//! A prompt that comes in was just made out of text, so it is in the processor's caches; what is cached of it was last used long ago.
//! What memory takes of that is a contender, too: it reads or writes the same bytes and does nothing else.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant};

use memtier::{Blocks, Content, Settled, Ticket, Tokens};

use crate::common_cache::CommonCache;
use crate::prefix_bytes::Bytes;
use crate::prefix_engine::{Kv, PER_BLOCK, PrefixEngine};
use crate::timing::Bench;

/// Blocks of one prompt: 4,096 tokens.
pub(crate) const PROMPT: usize = 256;
const STD: &str = "map + list + mutex, std's hasher";
const FOLDHASH: &str = "map + list + mutex, foldhash";
/// Nobody's cache: what is between an operation and memory.
const BYTES: &str = "the bytes alone";

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A prompt that is cached: found, held, let go.
    Lookup,
    /// The same where the prompt itself is in no cache of the processor either.
    LookupCold,
    /// Blocks that hold something new.
    Publish,
    /// Blocks for a request, all at once, out of a cache that has all there are.
    Evict,
    /// The same, one at a time.
    EvictOne,
}

/// Either cache, full of prompts: everything that `Part`s need.
pub(crate) trait Contender {
    /// Finds, holds and lets go.
    fn lookup(&mut self, tokens: &[u32]);
    /// Takes blocks for a new request, `at_once`.
    fn acquire(&mut self, at_once: usize);
    /// Between the two: they are written.
    fn write(&mut self);
    fn publish(&mut self, tokens: &[u32]);
    /// The request ends.
    fn end(&mut self);
}

/// Prompts without an end, and the latest that fill a cache.
struct Prompts {
    seed: u32,
    all: Vec<Vec<u32>>,
    at: usize,
}

impl Prompts {
    fn new(blocks: usize) -> Self {
        let mut prompts = Prompts { seed: 0, all: Vec::new(), at: 0 };
        let count = (blocks / PROMPT).max(1);
        prompts.all = (0..count).map(|_| prompts.fresh(Vec::new())).collect();
        prompts
    }

    /// One that shares nothing with any other.
    fn fresh(&mut self, mut tokens: Vec<u32>) -> Vec<u32> {
        self.seed += 1;
        tokens.clear();
        let mut random = self.seed;
        tokens.extend((0..PROMPT * PER_BLOCK).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 15
        }));
        tokens[0] = self.seed;
        tokens
    }

    /// The one that was used longest ago.
    fn next(&mut self) -> &[u32] {
        self.at = (self.at + 1) % self.all.len();
        &self.all[self.at]
    }

    /// A new one in the place of the one that was used longest ago.
    fn replaced(&mut self) -> &[u32] {
        self.next();
        let old = std::mem::take(&mut self.all[self.at]);
        self.all[self.at] = self.fresh(old);
        &self.all[self.at]
    }
}

/// A full cache and its prompts.
struct Run<C> {
    contender: C,
    prompts: Prompts,
    /// The prompt that comes in.
    incoming: Vec<u32>,
}

impl<C: Contender> Run<C> {
    fn new(blocks: usize, mut contender: C) -> Self {
        let prompts = Prompts::new(blocks);
        for prompt in &prompts.all {
            contender.acquire(PROMPT);
            contender.write();
            contender.publish(prompt);
            contender.end();
        }
        // What is left over is held by nobody for good: all blocks are cached from here on.
        Run { contender, prompts, incoming: Vec::with_capacity(PROMPT * PER_BLOCK) }
    }

    fn time(&mut self, part: Part, n: u64) -> Duration {
        let start = Instant::now();
        if part == Part::LookupCold {
            (0..n).for_each(|_| self.contender.lookup(self.prompts.next()));
            return start.elapsed();
        }
        let mut spent = Duration::ZERO;
        if part == Part::Lookup {
            for _ in 0..n {
                self.incoming.clear();
                self.incoming.extend_from_slice(self.prompts.next());
                let start = Instant::now();
                self.contender.lookup(&self.incoming);
                spent += start.elapsed();
            }
            return spent;
        }
        // One at a time, a prompt is as many operations as it has blocks.
        let per_prompt = if part == Part::EvictOne { PROMPT as u64 } else { 1 };
        let prompts = n.div_ceil(per_prompt);
        for _ in 0..prompts {
            let tokens = self.prompts.replaced();
            let start = Instant::now();
            self.contender.acquire(if part == Part::EvictOne { 1 } else { PROMPT });
            let acquired = start.elapsed();
            self.contender.write();
            let start = Instant::now();
            self.contender.publish(tokens);
            spent += if part == Part::Publish { start.elapsed() } else { acquired };
            self.contender.end();
        }
        spent.mul_f64(n as f64 / (prompts * per_prompt) as f64)
    }
}

/// Ours. The ticket goes before the engine.
struct Ours {
    ticket: Option<Ticket<Kv>>,
    settled: Option<Settled>,
    engine: PrefixEngine,
}

const MOST: Tokens = Tokens::new((PROMPT * PER_BLOCK) as u64);

impl Contender for Ours {
    fn lookup(&mut self, tokens: &[u32]) {
        let lease = self.engine.cache.lookup(&Content::new(self.engine.root, tokens));
        let ticket = lease.map(|lease| lease.open(MOST));
        assert!(black_box(ticket).is_ok_and(|ticket| ticket.tokens() == MOST));
    }

    fn acquire(&mut self, at_once: usize) {
        let ticket = self.ticket.insert(self.engine.pool.open(MOST));
        for _ in 0..PROMPT / at_once {
            assert!(ticket.push(Blocks::new(at_once as u64)).is_ok());
        }
    }

    fn write(&mut self) {
        let ticket = self.ticket.as_mut();
        self.settled = ticket.and_then(|ticket| self.engine.write(ticket, PROMPT).ok());
    }

    fn publish(&mut self, tokens: &[u32]) {
        if let (Some(ticket), Some(settled)) = (&mut self.ticket, &self.settled) {
            let published = self.engine.cache.publish(ticket, settled, &Content::new(self.engine.root, tokens));
            assert_eq!(published, Ok(MOST));
        }
    }

    fn end(&mut self) {
        self.ticket = None;
    }
}

/// The common design.
struct Common<S> {
    cache: CommonCache<S>,
    table: Vec<u32>,
}

impl<S: BuildHasher + Clone> Contender for Common<S> {
    fn lookup(&mut self, tokens: &[u32]) {
        self.cache.lookup(tokens, &mut self.table);
        assert_eq!(black_box(&self.table).len(), PROMPT);
        self.end();
    }

    fn acquire(&mut self, at_once: usize) {
        for _ in 0..PROMPT / at_once {
            assert!(self.cache.acquire(at_once, &mut self.table));
        }
    }

    fn write(&mut self) {}

    fn publish(&mut self, tokens: &[u32]) {
        self.cache.publish(tokens, &self.table);
    }

    fn end(&mut self) {
        self.cache.release(&self.table);
        self.table.clear();
    }
}

/// One part at one size. Contenders are filled when they first run: that takes a while.
fn bench(what: &'static str, part: Part, blocks: usize) -> Bench {
    // Every block is part of a prompt, so that a full cache leaves none free.
    let blocks = (blocks / PROMPT).max(1) * PROMPT;
    let mut ours = None;
    let (mut std, mut fold, mut bytes) = (None, None, None);
    Bench::new(what)
        .with_clock("memtier", move |n| {
            let run = ours.get_or_insert_with(|| {
                let engine = PrefixEngine::new(blocks).expect("a bench engine fits into the machine");
                Run::new(blocks, Ours { ticket: None, settled: None, engine })
            });
            run.time(part, n)
        })
        .with_clock(STD, move |n| common(&mut std, RandomState::new, blocks).time(part, n))
        .with_clock(FOLDHASH, move |n| common(&mut fold, foldhash::fast::RandomState::default, blocks).time(part, n))
        .with_clock(BYTES, move |n| bytes.get_or_insert_with(|| Run::new(blocks, Bytes::new(blocks))).time(part, n))
}

fn common<S: BuildHasher + Clone>(
    run: &mut Option<Run<Common<S>>>,
    hasher: impl Fn() -> S,
    blocks: usize,
) -> &mut Run<Common<S>> {
    run.get_or_insert_with(|| {
        let cache = CommonCache::new(blocks as u32, PER_BLOCK, hasher());
        Run::new(blocks, Common { cache, table: Vec::with_capacity(PROMPT) })
    })
}

macro_rules! benches {
    ($($name:ident: $part:ident, $blocks:literal, $what:literal;)*) => {
        /// Every part at every size.
        pub(crate) const BENCHES: &[fn() -> Result<Bench, Box<dyn Error>>] = &[$($name),*];
        $(fn $name() -> Result<Bench, Box<dyn Error>> {
            Ok(bench($what, Part::$part, $blocks))
        })*
    };
}

benches! {
    lookup_3: Lookup, 1_000, "prefix of 256 blocks: lookup + acquire + release, cache of 10^3";
    lookup_4: Lookup, 10_000, "prefix of 256 blocks: lookup + acquire + release, cache of 10^4";
    lookup_5: Lookup, 100_000, "prefix of 256 blocks: lookup + acquire + release, cache of 10^5";
    lookup_6: Lookup, 1_000_000, "prefix of 256 blocks: lookup + acquire + release, cache of 10^6";
    lookup_cold: LookupCold, 1_000_000, "prefix of 256 blocks: lookup + acquire + release, prompt in no cache, 10^6";
    publish_3: Publish, 1_000, "prefix of 256 blocks: publish, cache of 10^3";
    publish_4: Publish, 10_000, "prefix of 256 blocks: publish, cache of 10^4";
    publish_5: Publish, 100_000, "prefix of 256 blocks: publish, cache of 10^5";
    publish_6: Publish, 1_000_000, "prefix of 256 blocks: publish, cache of 10^6";
    evict_3: Evict, 1_000, "prefix: evict + acquire 256 blocks, cache of 10^3";
    evict_4: Evict, 10_000, "prefix: evict + acquire 256 blocks, cache of 10^4";
    evict_5: Evict, 100_000, "prefix: evict + acquire 256 blocks, cache of 10^5";
    evict_6: Evict, 1_000_000, "prefix: evict + acquire 256 blocks, cache of 10^6";
    evict_one_3: EvictOne, 1_000, "prefix: evict + acquire one block, cache of 10^3";
    evict_one_4: EvictOne, 10_000, "prefix: evict + acquire one block, cache of 10^4";
    evict_one_5: EvictOne, 100_000, "prefix: evict + acquire one block, cache of 10^5";
    evict_one_6: EvictOne, 1_000_000, "prefix: evict + acquire one block, cache of 10^6";
}
