//! The cached blocks as a tree: each entry is a block's worth of tokens behind its parent's.
//!
//! An entry owns one referent of its block. A [lease](Lease) on an entry keeps it and everything before it, so a request that
//! starts with 256 cached blocks costs one count and not 256. `busy` counts the leases on an entry and the busy entries right
//! behind it: zero means that nothing needs the block, and those entries are what eviction can take.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use super::{
    content::{Content, Digest, Root},
    events::Events,
    hash::Keys,
    index::{Index, NONE},
    prefetch,
    uses::{Tick, Uses},
};
use crate::pool::core::SharedCore;

/// How many blocks are hashed, and their lines asked for, before the first of them is compared.
const AHEAD: usize = 16;
/// How many blocks behind a match are compared for one that starts alike.
const SIBLINGS: usize = 16;

/// A block in the cache, in one cache line.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Entry {
    /// What the caller says is in the block besides tokens; zero for nothing.
    pub(super) extra: u128,
    hash: u64,
    used: Tick,
    pub(super) parent: u32,
    /// [`NONE`] for a root.
    pub(super) block: u32,
    busy: u32,
    /// The entries right behind this one, as a list.
    first_child: u32,
    next: u32,
    previous: u32,
}

const VACANT: Entry = Entry {
    extra: 0,
    hash: 0,
    used: Tick::MAX,
    parent: NONE,
    block: NONE,
    busy: 0,
    first_child: NONE,
    next: NONE,
    previous: NONE,
};

/// The shared part of a cache.
pub(crate) struct Tree {
    pub(crate) core: SharedCore,
    pub(super) per_block: usize,
    /// The model's; a later one's requests must not be given its blocks.
    pub(crate) epoch: u64,
    /// How many blocks there may be, and roots besides.
    most: u32,
    roots: usize,
    keys: Keys,
    /// Entries that nothing needs, for whoever asks without waiting.
    idle: AtomicU32,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) entries: Box<[Entry]>,
    tokens: Box<[u32]>,
    vacant: Vec<u32>,
    /// Digest of the key, number and entry of each root.
    pub(super) roots: Vec<(Digest, u64, u32)>,
    /// Forgotten roots that something is still behind.
    retired: Vec<u32>,
    index: Index,
    uses: Uses,
    pub(super) cached: u32,
    pub(super) idle: u32,
    pub(super) events: Option<Events>,
    pub(super) owners: Vec<super::pins::Account>,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evicted: u64,
}

/// Keeps an entry and everything before it. Counted by hand: [`Tree::end`] gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) entry: u32,
    /// Blocks from the root on.
    pub(super) depth: u32,
}

/// A lease on a path, held by a request. Dropping it ends it, on any thread.
pub(crate) struct Lease {
    pub(crate) tree: Arc<Tree>,
    pub(super) at: At,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tree.lock().end(self.at.entry);
    }
}

impl Lease {
    /// How many blocks it keeps.
    pub(crate) fn blocks(&self) -> usize {
        self.at.depth as usize
    }

    /// Another one on the same path.
    pub(crate) fn again(&self) -> Lease {
        self.tree.lock().begin(self.at.entry);
        Lease { tree: self.tree.clone(), at: self.at }
    }

    /// The same lease on the first `depth` blocks of its path only.
    pub(crate) fn shorten(&mut self, depth: usize) {
        let mut state = self.tree.lock();
        let mut at = self.at;
        while at.depth as usize > depth {
            at = At { entry: state.entries[at.entry as usize].parent, depth: at.depth - 1 };
        }
        state.begin(at.entry);
        state.end(self.at.entry);
        drop(state);
        self.at = at;
    }
}

/// The state, and the count that is looked at without it.
pub(super) struct Locked<'t> {
    state: MutexGuard<'t, State>,
    idle: &'t AtomicU32,
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}
impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.idle.store(self.state.idle, Ordering::Relaxed);
    }
}

impl Tree {
    pub(super) fn new(core: SharedCore, epoch: u64, most: usize, roots: usize, events: Option<Events>) -> Self {
        let per_block = usize::try_from(core.per_block.count()).unwrap_or(usize::MAX).max(1);
        let count = most + roots;
        let state = State {
            entries: vec![VACANT; count].into_boxed_slice(),
            tokens: vec![0; count * per_block].into_boxed_slice(),
            vacant: (0..count as u32).rev().collect(),
            roots: Vec::with_capacity(roots),
            retired: Vec::with_capacity(roots),
            index: Index::new(most),
            uses: Uses::new(count),
            cached: 0,
            idle: 0,
            events,
            owners: Vec::new(),
            hits: 0,
            misses: 0,
            evicted: 0,
        };
        Tree {
            core,
            per_block,
            most: most as u32,
            roots,
            epoch,
            keys: Keys::random(),
            idle: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        // No step below can panic between two changes that belong together.
        Locked { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), idle: &self.idle }
    }

    /// Blocks that nothing but the cache needs.
    pub(crate) fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Evicts up to `count` blocks, the ones unused for longest first. `free` gets the ids: their referent is the caller's now.
    pub(crate) fn evict(&self, count: usize, mut free: impl FnMut(u32)) -> usize {
        let mut state = self.lock();
        let mut evicted = 0;
        while evicted < count {
            let Some(block) = state.evict_one() else { break };
            free(block);
            evicted += 1;
        }
        evicted
    }

    /// A new root: nothing is behind it. `None` when all are taken.
    pub(super) fn add_root(&self, number: u64, digest: Digest) -> Option<u32> {
        let mut guard = self.lock();
        let state = &mut *guard;
        // Forgotten ones go when nothing is behind them any more.
        let State { entries, retired, vacant, .. } = state;
        retired.retain(|root| {
            let is_empty = entries[*root as usize].first_child == NONE && entries[*root as usize].busy == 1;
            if is_empty {
                entries[*root as usize] = VACANT;
                vacant.push(*root);
            }
            !is_empty
        });
        if state.roots.len() + state.retired.len() == self.roots {
            return None;
        }
        let entry = state.vacant.pop()?;
        // Busy for as long as it is there, so that it is neither counted nor evicted.
        let extra = u128::from(number);
        state.entries[entry as usize] = Entry { hash: self.keys.root(number), used: 0, busy: 1, extra, ..VACANT };
        state.roots.push((digest, number, entry));
        if let Some(events) = &mut state.events {
            events.root(entry, digest);
        }
        Some(entry)
    }

    /// Forgets a root: what is behind it is found by nobody again.
    pub(super) fn forget(&self, number: u64) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(index) = state.roots.iter().position(|(_, known, _)| *known == number) else { return false };
        let (_, _, root) = state.roots.swap_remove(index);
        // Not the number of any root that is handed out: lookups compare it.
        state.entries[root as usize].extra = 0;
        state.retired.push(root);
        state.empty(root, |block| self.core.release(block));
        true
    }

    /// Walks from `root` along `content` for as long as blocks are cached, and takes a lease on the last. `found` gets their blocks.
    /// `None` for a root that was forgotten.
    pub(super) fn lookup(&self, content: &Content<'_>, mut found: impl FnMut(u32)) -> Option<At> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let root = state.root(content.root)?;
        let mut at = At { entry: root, depth: 0 };
        let blocks = content.tokens.len() / self.per_block;
        let mut hash = state.entries[root as usize].hash;
        let (mut hashes, mut candidates) = ([0; AHEAD], [NONE; AHEAD]);
        'all: for first in (0..blocks).step_by(AHEAD) {
            let count = AHEAD.min(blocks - first);
            for (index, slot) in hashes[..count].iter_mut().enumerate() {
                hash = self.keys.chain(
                    hash,
                    content.extra(first + index, self.per_block),
                    self.part(content, first + index),
                );
                *slot = hash;
                state.index.prefetch(hash);
            }
            for (slot, hash) in candidates.iter_mut().zip(&hashes[..count]) {
                *slot = state.index.candidate(*hash);
                if *slot == NONE {
                    // Nothing behind it is of use.
                    break;
                }
                prefetch(&state.entries[*slot as usize]);
                prefetch(&state.tokens[*slot as usize * self.per_block]);
            }
            for index in 0..count {
                let (part, extra) = (self.part(content, first + index), content.extra(first + index, self.per_block));
                let is_it = |entry| state.is(entry, at.entry, extra, part, self.per_block);
                let candidate = candidates[index];
                if candidate == NONE {
                    break 'all;
                }
                let entry = match is_it(candidate) {
                    true => candidate,
                    false => match state.index.find(hashes[index], is_it) {
                        Some(entry) => entry,
                        None => break 'all,
                    },
                };
                found(state.entries[entry as usize].block);
                at = At { entry, depth: at.depth + 1 };
            }
        }
        state.hits += u64::from(at.depth);
        state.misses += blocks as u64 - u64::from(at.depth);
        state.begin(at.entry);
        Some(at)
    }

    /// The cached block behind `at` that starts with most of `tokens`, and how many: at least one, less than a block.
    pub(super) fn alike(&self, at: At, extra: u128, tokens: &[u32]) -> Option<(u32, usize)> {
        let state = self.lock();
        let mut child = state.entries[at.entry as usize].first_child;
        let mut best = None;
        for _ in 0..SIBLINGS {
            let entry = state.entries.get(child as usize)?;
            let theirs = &state.tokens[child as usize * self.per_block..][..self.per_block];
            let same = theirs.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            // What is in the block besides tokens may lie anywhere in it.
            if same > 0 && entry.extra == extra && best.is_none_or(|(_, most)| same > most) {
                // A referent for the caller, counted while the entry cannot go.
                best = Some((entry.block, same));
            }
            child = entry.next;
            if child == NONE {
                break;
            }
        }
        if let Some((block, _)) = best {
            self.core.share(block);
        }
        best
    }

    /// Adds block `index` of `content` behind `at`, whose referent the entry takes over, or finds that it is cached. Evicts what
    /// was unused for longest when there is no room; `None` when even that does not help.
    pub(super) fn add(
        &self,
        state: &mut State,
        at: At,
        content: &Content<'_>,
        index: usize,
        block: u32,
    ) -> Option<Added> {
        let (part, extra) = (self.part(content, index), content.extra(index, self.per_block));
        let hash = self.keys.chain(state.entries[at.entry as usize].hash, extra, part);
        let is_it = |entry| state.is(entry, at.entry, extra, part, self.per_block);
        let depth = at.depth + 1;
        if let Some(entry) = state.index.find(hash, is_it) {
            return Some(Added::Known(At { entry, depth }, state.entries[entry as usize].block));
        }
        if state.cached == self.most {
            let evicted = state.evict_one()?;
            self.core.release(evicted);
        }
        let entry = state.vacant.pop()?;
        let next = std::mem::replace(&mut state.entries[at.entry as usize].first_child, entry);
        if next != NONE {
            state.entries[next as usize].previous = entry;
        }
        state.entries[entry as usize] = Entry { extra, hash, used: 0, parent: at.entry, block, next, ..VACANT };
        state.tokens[entry as usize * self.per_block..][..self.per_block].copy_from_slice(part);
        state.index.insert(hash, entry);
        state.cached += 1;
        state.idle += 1;
        state.stored(entry, self.per_block);
        Some(Added::New(At { entry, depth }))
    }

    /// Whether block `index` of `content` is the one at `at`.
    pub(super) fn ends_with(&self, state: &State, at: At, content: &Content<'_>) -> bool {
        let Some(index) = (at.depth as usize).checked_sub(1) else { return true };
        if content.tokens.len() < at.depth as usize * self.per_block {
            return false;
        }
        let entry = &state.entries[at.entry as usize];
        let (part, extra) = (self.part(content, index), content.extra(index, self.per_block));
        state.is(at.entry, entry.parent, extra, part, self.per_block)
    }

    #[inline]
    fn part<'c>(&self, content: &Content<'c>, index: usize) -> &'c [u32] {
        &content.tokens[index * self.per_block..][..self.per_block]
    }
}

/// What came of a block that was to be added.
pub(super) enum Added {
    /// It is an entry now.
    New(At),
    /// The same is cached already, in this block.
    Known(At, u32),
}

impl State {
    /// The entry of a root that was not forgotten.
    pub(super) fn root(&self, root: Root) -> Option<u32> {
        let known = self.entries.get(root.entry as usize)?;
        (known.parent == NONE && known.extra == u128::from(root.number)).then_some(root.entry)
    }

    /// Whether an entry is the block of `tokens` behind `parent`.
    #[inline]
    fn is(&self, entry: u32, parent: u32, extra: u128, tokens: &[u32], per_block: usize) -> bool {
        let known = &self.entries[entry as usize];
        known.parent == parent
            && known.extra == extra
            && same(&self.tokens[entry as usize * per_block..][..per_block], tokens)
    }

    /// One more lease on an entry.
    pub(super) fn begin(&mut self, mut entry: u32) {
        loop {
            let known = &mut self.entries[entry as usize];
            known.busy += 1;
            if known.busy > 1 {
                return;
            }
            entry = known.parent;
            self.idle -= 1;
        }
    }

    /// One lease less. A path that nothing needs any more counts as used now.
    pub(super) fn end(&mut self, entry: u32) {
        let mut at = entry;
        loop {
            let known = &mut self.entries[at as usize];
            known.busy -= 1;
            if known.busy > 0 {
                break;
            }
            at = known.parent;
            self.idle += 1;
        }
        if self.entries[entry as usize].busy == 0 {
            let tick = self.uses.tick();
            self.entries[entry as usize].used = tick;
            let entries = &self.entries;
            self.uses.push(tick, entry, |tick, entry| entries[entry as usize].used == tick);
        }
    }

    /// Evicts the block that was unused for longest and has nothing behind it. Its referent is the caller's.
    fn evict_one(&mut self) -> Option<u32> {
        loop {
            let (tick, entry) = self.uses.oldest()?;
            let known = &self.entries[entry as usize];
            // Used again since; or needed; or with something behind it, whose eviction comes by here later.
            if known.used != tick || known.busy > 0 || known.first_child != NONE {
                continue;
            }
            let (parent, block) = (known.parent, known.block);
            self.remove(entry, true);
            self.evicted += 1;
            let known = &mut self.entries[parent as usize];
            if known.busy == 0 && known.first_child == NONE && known.used <= tick {
                known.used = tick;
                self.uses.put_back(tick, parent);
            }
            return Some(block);
        }
    }

    /// Takes an idle entry with nothing behind it out of everything.
    fn remove(&mut self, entry: u32, evicted: bool) {
        if let Some(events) = &mut self.events {
            events.removed(entry, evicted);
        }
        let Entry { hash, parent, next, previous, .. } = self.entries[entry as usize];
        match previous {
            NONE => self.entries[parent as usize].first_child = next,
            previous => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        self.index.remove(hash, entry);
        self.entries[entry as usize] = VACANT;
        self.vacant.push(entry);
        self.cached -= 1;
        self.idle -= 1;
    }

    /// Gives up what is behind a root and nothing needs. What requests still hold goes when it is unused for longest.
    pub(super) fn empty(&mut self, root: u32, mut free: impl FnMut(u32)) {
        let mut at = root;
        loop {
            while self.entries[at as usize].first_child != NONE {
                at = self.entries[at as usize].first_child;
            }
            // Everything behind `at` was seen. Up, and from sibling to sibling.
            loop {
                if at == root {
                    return;
                }
                let Entry { parent, next, block, busy, first_child, .. } = self.entries[at as usize];
                if busy == 0 && first_child == NONE {
                    free(block);
                    self.remove(at, false);
                }
                at = parent;
                if next != NONE {
                    at = next;
                    break;
                }
            }
        }
    }

    fn stored(&mut self, entry: u32, per_block: usize) {
        if let Some(events) = &mut self.events {
            let known = &self.entries[entry as usize];
            let tokens = &self.tokens[entry as usize * per_block..][..per_block];
            events.stored(entry, known.parent, known.extra, tokens);
        }
    }
}

/// Sixteen tokens a block is what everybody has; comparing those is one comparison of a line.
#[inline]
fn same(a: &[u32], b: &[u32]) -> bool {
    match (a.as_chunks::<16>(), b.as_chunks::<16>()) {
        (([a], []), ([b], [])) => a == b,
        _ => a == b,
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // No lease is left: each holds the tree.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for entry in state.entries.iter().filter(|entry| entry.block != NONE) {
            self.core.release(entry.block);
        }
    }
}
