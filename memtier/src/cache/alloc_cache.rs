//! The cache itself.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use super::{
    growth::{Growth, Warning},
    policy::{CEILING, Capacity, Override, REARM_STEPS, plan_capacity},
};
use crate::{account::mib, units::Bytes};

/// Which memory a captured graph has baked in: what the engine's graphs answer.
///
/// Closures from `&M` to `bool` implement it; an engine without graphs says [`NoGraphs`].
pub trait BakedIn<M> {
    /// Whether an instantiated graph reads or writes this memory when it is replayed.
    fn is_baked_in(&self, memory: &M) -> bool;
}

impl<M, F: Fn(&M) -> bool> BakedIn<M> for F {
    fn is_baked_in(&self, memory: &M) -> bool {
        self(memory)
    }
}

/// No graph has baked in anything.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoGraphs;

impl<M> BakedIn<M> for NoGraphs {
    fn is_baked_in(&self, _memory: &M) -> bool {
        false
    }
}

/// Memory that the cache gives up. Dropping it frees it, if `M` frees when it is dropped.
#[derive(Debug)]
#[must_use = "evicted memory is freed when this is dropped; hand it to the backend if `M` is only a name"]
pub struct Evicted<M> {
    /// The memory, with its size.
    pub memory: Vec<(Bytes, M)>,
}

impl<M> Evicted<M> {
    const fn nothing() -> Self {
        Evicted { memory: Vec::new() }
    }

    /// How many bytes it is.
    pub fn bytes(&self) -> Bytes {
        Bytes::sum(self.memory.iter().map(|(size, _)| *size)).unwrap_or(Bytes::MAX)
    }
}

/// What came of a step.
#[derive(Debug)]
#[must_use = "evicted memory is freed when this is dropped; hand it to the backend if `M` is only a name"]
pub struct StepEnd<M> {
    /// What a bound that has come down made the cache give up.
    pub evicted: Evicted<M>,
    /// Recycling that does not recycle, once.
    pub warnings: Vec<Warning>,
}

/// What an [`AllocCache`] holds and did. `Display` prints one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CacheStats {
    /// Steps so far.
    pub steps: u64,
    /// Bytes held.
    pub held: Bytes,
    /// The most that may be.
    pub capacity: Capacity,
    /// Distinct sizes held.
    pub sizes: u64,
    /// Buffers held.
    pub buffers: u64,
    /// Buffers filed since the start.
    pub filed: u64,
    /// Requests that were served from the cache.
    pub hits: u64,
    /// Requests that were not.
    pub misses: u64,
    /// Bytes given up since the start.
    pub freed: Bytes,
    /// Buffers given up in the last step.
    pub freed_last_step: u64,
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheStats { steps, held, capacity, sizes, buffers, filed, hits, misses, freed, freed_last_step } = self;
        write!(f, "step {steps}: held {} MiB of ", mib(*held))?;
        match capacity {
            Capacity::Bounded(most) => write!(f, "{} MiB", mib(*most))?,
            Capacity::Unbounded => f.write_str("no bound")?,
        }
        write!(f, ", {buffers} buffers in {sizes} sizes, {filed} filed, {hits} hits, {misses} misses, ")?;
        write!(f, "{freed_last_step} freed in the last step, {} MiB in all", mib(*freed))
    }
}

/// Keeps freed buffers for the next request of the same size, within what the card has left.
///
/// For the few places of an engine that recycle instead of planning. `M` is owned memory; `G` knows what graphs have baked
/// in. A size is whatever the caller rounds requests to, a [`SizeClass`](crate::account::SizeClass) for instance; requests
/// are served by exactly their size.
///
/// * Switched on it takes its bound from what is free then, and again every [`REARM_STEPS`] steps, evicting at once down to
///   the bound's low-water mark.
/// * The size that was not used for the longest time goes first.
/// * Memory that an instantiated graph has baked in is neither evicted nor handed out: the graph's next replay writes to it.
///   It counts as held.
///
/// ```
/// use memtier::Bytes;
/// use memtier::cache::{AllocCache, Capacity, NoGraphs, Override};
///
/// let mut cache = AllocCache::<Vec<u8>, _>::new(Override::parse(None)?, NoGraphs);
/// drop(cache.enable(Some(Bytes::mib(262)))); // what the device says is free
/// assert_eq!(cache.stats().capacity, Capacity::Bounded(Bytes::mib(64)));
///
/// let size = Bytes::kib(64);
/// let buffer = cache.take(size).unwrap_or_else(|| vec![0; 64 << 10]); // a miss: create it
/// drop(cache.put(size, buffer)); // freed by its owner: file it
/// assert!(cache.take(size).is_some());
/// for warning in cache.end_step(|| Some(Bytes::mib(262))).warnings {
///     eprintln!("{warning}");
/// }
/// # Ok::<(), memtier::cache::BadOverride>(())
/// ```
pub struct AllocCache<M, G = NoGraphs> {
    operator: Override,
    graphs: G,
    enabled: bool,
    capacity: Capacity,
    held: Bytes,
    sizes: BTreeMap<Bytes, Shelf<M>>,
    /// Which size was used when: the oldest first.
    order: BTreeMap<u64, Bytes>,
    clock: u64,
    growth: Growth,
    stats: Counters,
}

/// The buffers of one size, the one filed first in front.
struct Shelf<M> {
    used: u64,
    buffers: VecDeque<M>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    steps: u64,
    filed: u64,
    hits: u64,
    misses: u64,
    freed: u64,
    freed_bytes: u64,
    freed_at_step_start: u64,
    freed_last_step: u64,
}

impl<M, G: BakedIn<M>> AllocCache<M, G> {
    /// A cache that is switched off: it holds nothing until [`enable`](Self::enable).
    pub fn new(operator: Override, graphs: G) -> Self {
        AllocCache {
            operator,
            graphs,
            enabled: false,
            // What holds until there is a reading.
            capacity: Capacity::Bounded(CEILING),
            held: Bytes::ZERO,
            sizes: BTreeMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            growth: Growth::default(),
            stats: Counters::default(),
        }
    }

    /// Switches it on, with a bound that follows from what is `free` now. On again while on, it computes the bound again.
    pub fn enable(&mut self, free: Option<Bytes>) -> Evicted<M> {
        self.enabled = true;
        self.arm(free)
    }

    /// Switches it off and gives up everything but what graphs have baked in.
    pub fn disable(&mut self) -> Evicted<M> {
        self.enabled = false;
        self.evict_to(Bytes::ZERO)
    }

    /// Computes the bound from what is `free`, and evicts to its low-water mark at once if more than the bound is held.
    /// Without a reading the bound stays.
    pub fn arm(&mut self, free: Option<Bytes>) -> Evicted<M> {
        self.capacity = plan_capacity(self.operator, free, self.capacity);
        self.evict_if_over()
    }

    /// A buffer of exactly `size`, if one is held.
    pub fn take(&mut self, size: Bytes) -> Option<M> {
        self.growth.asked(size, self.stats.steps);
        let found = self.sizes.get_mut(&size).and_then(|shelf| {
            // The one filed last: of all it is the likeliest to be in a cache of the processor.
            let free = shelf.buffers.iter().rposition(|memory| !self.graphs.is_baked_in(memory))?;
            shelf.buffers.remove(free)
        });
        match found {
            Some(memory) => {
                self.stats.hits += 1;
                self.held = self.held.beyond(size);
                self.touch(size);
                Some(memory)
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }

    /// Files a buffer that its owner has freed. What is returned has to be freed: this buffer, when the cache is off, or
    /// what no longer fits.
    pub fn put(&mut self, size: Bytes, memory: M) -> Evicted<M> {
        if !self.enabled && !self.graphs.is_baked_in(&memory) {
            return Evicted { memory: vec![(size, memory)] };
        }
        self.stats.filed += 1;
        self.growth.filed(size, self.stats.steps);
        self.held = self.held.plus(size).unwrap_or(Bytes::MAX);
        let shelf = Shelf { used: u64::MAX, buffers: VecDeque::new() };
        self.sizes.entry(size).or_insert(shelf).buffers.push_back(memory);
        self.touch(size);
        self.evict_if_over()
    }

    /// Ends a step. Every [`REARM_STEPS`] steps `free` is asked what is free, and the bound follows.
    pub fn end_step(&mut self, free: impl FnOnce() -> Option<Bytes>) -> StepEnd<M> {
        let warnings = self.growth.end_step(self.stats.steps, |size| self.sizes.contains_key(&size));
        self.stats.steps += 1;
        let due = self.enabled && self.stats.steps.is_multiple_of(REARM_STEPS);
        let evicted = if due { self.arm(free()) } else { Evicted::nothing() };
        self.stats.freed_last_step = self.stats.freed - self.stats.freed_at_step_start;
        self.stats.freed_at_step_start = self.stats.freed;
        StepEnd { evicted, warnings }
    }

    /// Gives up all that no graph has baked in: before a graph's memory pool is destroyed, or when memory is wanted.
    pub fn drain(&mut self) -> Evicted<M> {
        self.evict_to(Bytes::ZERO)
    }

    /// What it holds and did.
    pub fn stats(&self) -> CacheStats {
        let Counters { steps, filed, hits, misses, freed_bytes, freed_last_step, .. } = self.stats;
        CacheStats {
            steps,
            held: self.held,
            capacity: self.capacity,
            sizes: self.sizes.len() as u64,
            buffers: self.sizes.values().map(|shelf| shelf.buffers.len() as u64).sum(),
            filed,
            hits,
            misses,
            freed: Bytes::new(freed_bytes),
            freed_last_step,
        }
    }

    fn touch(&mut self, size: Bytes) {
        let Some(shelf) = self.sizes.get_mut(&size) else { return };
        self.order.remove(&shelf.used);
        if shelf.buffers.is_empty() {
            self.sizes.remove(&size);
            return;
        }
        self.clock += 1;
        shelf.used = self.clock;
        self.order.insert(self.clock, size);
    }

    fn evict_if_over(&mut self) -> Evicted<M> {
        match (self.capacity, self.capacity.low_water()) {
            (Capacity::Bounded(most), Some(low)) if self.held > most => self.evict_to(low),
            _ => Evicted::nothing(),
        }
    }

    /// Gives up the sizes unused for longest until at most `low` is held, or only baked-in memory is.
    fn evict_to(&mut self, low: Bytes) -> Evicted<M> {
        let mut memory = Vec::new();
        for size in self.order.values().copied().collect::<Vec<_>>() {
            let Some(shelf) = self.sizes.get_mut(&size) else { continue };
            let mut at = 0;
            while self.held > low && at < shelf.buffers.len() {
                if self.graphs.is_baked_in(&shelf.buffers[at]) {
                    at += 1;
                } else if let Some(buffer) = shelf.buffers.remove(at) {
                    self.held = self.held.beyond(size);
                    memory.push((size, buffer));
                }
            }
            if shelf.buffers.is_empty() {
                self.order.remove(&shelf.used);
                self.sizes.remove(&size);
            }
            if self.held <= low {
                break;
            }
        }
        let evicted = Evicted { memory };
        self.stats.freed += evicted.memory.len() as u64;
        self.stats.freed_bytes = self.stats.freed_bytes.saturating_add(evicted.bytes().count());
        evicted
    }
}

impl<M, G: BakedIn<M>> fmt::Debug for AllocCache<M, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocCache").field("enabled", &self.enabled).field("stats", &self.stats()).finish()
    }
}
