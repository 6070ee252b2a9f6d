//! The cached blocks as a tree: each entry is a block's worth of tokens behind its parent's.
//!
//! An entry owns one referent of its block. A [lease](super::Lease) on an entry keeps it and everything before it, so a request that
//! starts with 256 cached blocks costs one count and not 256. `busy` counts the leases on an entry and the busy entries right
//! behind it: zero means that nothing needs the block, and those entries are what eviction can take.

mod walk;

use std::sync::PoisonError;

use super::{
    content::{Contents, Digest, Root},
    events::Events,
    hash::Keys,
    index::{Index, NONE},
    lease::At,
    prefetch,
    uses::{Tick, Uses},
};
use crate::pool::{
    core::SharedCore,
    sync::{AtomicU32, Mutex, MutexGuard, Ordering},
};

pub(super) use walk::{Name, Path, RootName};

/// How many blocks ahead of a comparison the lines of a path are asked for.
const AHEAD: u32 = 8;
/// How many blocks behind a match are compared for one that starts alike.
const SIBLINGS: usize = 16;

/// A number that no other entry has or had. Zero: vacant.
pub(super) type Stamp = u64;

/// A block in the cache, in one cache line.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Entry {
    /// What the caller says is in the block besides tokens; zero for nothing.
    pub(super) extra: u128,
    /// Where it is in the index; zero when it is not, having been an only child so far.
    pub(super) hash: u64,
    pub(super) used: Tick,
    stamp: Stamp,
    pub(super) parent: u32,
    /// [`NONE`] for a root.
    pub(super) block: u32,
    pub(super) busy: u32,
    /// The entries right behind this one, as a list.
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
}

pub(super) const VACANT: Entry = Entry {
    extra: 0,
    hash: 0,
    used: Tick::MAX,
    stamp: 0,
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
    pub(super) vacant: Vec<u32>,
    /// Digest of the key, number and entry of each root.
    pub(super) roots: Vec<(Digest, u64, u32)>,
    /// Forgotten roots that something is still behind.
    pub(super) retired: Vec<u32>,
    pub(super) index: Index,
    pub(super) uses: Uses,
    stamps: Stamp,
    pub(super) cached: u32,
    pub(super) idle: u32,
    pub(super) events: Option<Events>,
    pub(super) owners: Vec<super::pins::Account>,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evicted: u64,
}

/// The state, and the count that is looked at without it.
pub(super) struct Locked<'t> {
    state: MutexGuard<'t, State>,
    shown: &'t AtomicU32,
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
        self.shown.store(self.state.idle, Ordering::Relaxed);
    }
}

impl Tree {
    /// `None` when there is not enough memory for the books.
    pub(super) fn new(core: SharedCore, epoch: u64, most: usize, roots: usize, events: usize) -> Option<Self> {
        let per_block = usize::try_from(core.per_block.count()).ok()?.max(1);
        let count = most.checked_add(roots).filter(|count| *count < NONE as usize)?;
        let events = if events > 0 { Some(Events::new(count, events)?) } else { None };
        let state = State {
            entries: filled(count, VACANT)?,
            tokens: filled(count.checked_mul(per_block)?, 0)?,
            vacant: (0..count as u32).rev().collect(),
            roots: Vec::with_capacity(roots),
            retired: Vec::with_capacity(roots),
            index: Index::new(most),
            uses: Uses::new(count),
            stamps: 0,
            cached: 0,
            idle: 0,
            events,
            owners: Vec::new(),
            hits: 0,
            misses: 0,
            evicted: 0,
        };
        Some(Tree {
            core,
            per_block,
            most: most as u32,
            roots,
            epoch,
            keys: Keys::random(),
            idle: AtomicU32::new(0),
            state: Mutex::new(state),
        })
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        // No step below can panic between two changes that belong together.
        Locked { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), shown: &self.idle }
    }

    /// Blocks that nothing but the cache needs.
    pub(crate) fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Evicts blocks, the ones unused for longest first, for as long as `free` asks for more. It gets the ids, whose referent is the
    /// caller's then, and how many could go after each.
    pub(crate) fn evict(&self, free: impl FnMut(u32, usize) -> bool) {
        self.lock().evict(free);
    }

    /// The blocks that nothing but the cache needs.
    pub(crate) fn each_idle(&self, mut see: impl FnMut(u32)) {
        let state = self.lock();
        let idle = state.entries.iter().filter(|entry| entry.block != NONE && entry.busy == 0);
        idle.for_each(|entry| see(entry.block));
    }

    /// The number and entry of the root of `digest`: a new one with nothing behind it, unless there is one. `None` when all are taken.
    pub(super) fn add_root(&self, digest: Digest) -> Option<(u64, u32)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        // Under one lock with adding it: of two roots of one key, only one would be forgotten.
        if let Some((_, number, entry)) = state.roots.iter().find(|(known, ..)| *known == digest) {
            return Some((*number, *entry));
        }
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
        let number = crate::next_id();
        let extra = u128::from(number);
        state.entries[entry as usize] = Entry { used: 0, busy: 1, extra, ..VACANT };
        state.roots.push((digest, number, entry));
        if let Some(events) = &mut state.events {
            events.root(entry, digest);
        }
        Some((number, entry))
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
    pub(super) fn lookup(&self, content: &impl Contents, mut found: impl FnMut(u32)) -> Option<At> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let root = state.root(content.root())?;
        let mut at = At { entry: root, depth: 0, root };
        let parts = content.tokens().chunks_exact(self.per_block);
        let blocks = parts.len();
        for (index, part) in parts.enumerate() {
            let extra = content.extra(index, self.per_block);
            let Some(entry) = self.child(state, at.entry, extra, part) else { break };
            found(state.entries[entry as usize].block);
            state.pass(at.entry, entry);
            at = At { entry, depth: at.depth + 1, root };
        }
        state.hits += u64::from(at.depth);
        state.misses += blocks as u64 - u64::from(at.depth);
        // The lease. What is before it was counted on the way.
        state.entries[at.entry as usize].busy += 1;
        Some(at)
    }

    /// The block of `tokens` behind `parent`.
    #[inline]
    fn child(&self, state: &State, parent: u32, extra: u128, tokens: &[u32]) -> Option<u32> {
        let first = state.entries[parent as usize].first_child;
        let known = state.entries.get(first as usize)?;
        if let Some(ahead) = state.prefetch_beyond(parent, first) {
            prefetch(&state.tokens[ahead * self.per_block]);
        }
        // Whose child it is needs no look: it was found through its parent.
        if known.extra == extra && same(state.tokens_of(first, self.per_block), tokens) {
            return Some(first);
        }
        if known.next == NONE { None } else { self.sibling(state, parent, extra, tokens) }
    }

    /// The same where the latest block behind `parent` is another one. Apart, so that a walk along one path stays small.
    #[inline(never)]
    fn sibling(&self, state: &State, parent: u32, extra: u128, tokens: &[u32]) -> Option<u32> {
        let hash = self.keys.hash(parent, extra, tokens);
        state.index.find(hash, |entry| state.is(entry, parent, extra, tokens, self.per_block))
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

    /// Adds block `index` of `content` behind `at`, whose referent the entry takes over, or finds that it is cached; the lease that is on
    /// `at` moves there. Evicts what was unused for longest when there is no room; `None` when even that does not help.
    #[inline]
    pub(super) fn add(
        &self,
        state: &mut State,
        at: At,
        content: &impl Contents,
        index: usize,
        block: u32,
    ) -> Option<Added> {
        let (part, extra) = (self.part(content, index), content.extra(index, self.per_block));
        let (depth, root) = (at.depth + 1, at.root);
        if let Some(entry) = self.child(state, at.entry, extra, part) {
            state.begin(entry);
            state.end(at.entry);
            return Some(Added::Known(At { entry, depth, root }, state.entries[entry as usize].block));
        }
        if state.cached == self.most {
            let evicted = state.evict_one()?;
            self.core.release(evicted);
        }
        let entry = state.vacant.pop()?;
        state.stamps += 1;
        let next = std::mem::replace(&mut state.entries[at.entry as usize].first_child, entry);
        // An only child is found without the index.
        let mut hash = 0;
        if next != NONE {
            state.entries[next as usize].previous = entry;
            self.file(state, next);
            hash = self.keys.hash(at.entry, extra, part);
            state.index.insert(hash, entry);
        }
        // What is behind `at` needs it as the lease did, so its count stays.
        state.entries[entry as usize] =
            Entry { extra, hash, used: 0, stamp: state.stamps, busy: 1, parent: at.entry, block, next, ..VACANT };
        copy(&mut state.tokens[entry as usize * self.per_block..][..self.per_block], part);
        state.cached += 1;
        state.stored(entry, self.per_block);
        Some(Added::New(At { entry, depth, root }))
    }

    /// Puts an entry into the index that was an only child and is none any more, unless it is there since an earlier time.
    fn file(&self, state: &mut State, entry: u32) {
        let known = &mut state.entries[entry as usize];
        if known.hash == 0 {
            let tokens = &state.tokens[entry as usize * self.per_block..][..self.per_block];
            known.hash = self.keys.hash(known.parent, known.extra, tokens);
            state.index.insert(known.hash, entry);
        }
    }

    /// Whether block `index` of `content` is the one at `at`.
    pub(super) fn ends_with(&self, state: &State, at: At, content: &impl Contents) -> bool {
        let Some(index) = (at.depth as usize).checked_sub(1) else { return true };
        if content.tokens().len() < at.depth as usize * self.per_block {
            return false;
        }
        let entry = &state.entries[at.entry as usize];
        let (part, extra) = (self.part(content, index), content.extra(index, self.per_block));
        state.is(at.entry, entry.parent, extra, part, self.per_block)
    }

    #[inline]
    fn part<'c>(&self, content: &'c impl Contents, index: usize) -> &'c [u32] {
        &content.tokens()[index * self.per_block..][..self.per_block]
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

    pub(super) fn stamp(&self, entry: u32) -> Stamp {
        self.entries[entry as usize].stamp
    }

    /// Whether the path to `at` leads through `before`, which had `stamp`.
    pub(super) fn has_passed(&self, at: At, before: At, stamp: Stamp) -> bool {
        let mut entry = at.entry;
        for _ in before.depth..at.depth {
            entry = self.entries[entry as usize].parent;
        }
        before.depth <= at.depth && entry == before.entry && self.stamp(entry) == stamp
    }

    /// Asks for the line of an entry some way beyond `to`, on a walk that comes from `from`: blocks that were published together are
    /// neighbours, in one direction or the other.
    #[inline]
    pub(super) fn prefetch_beyond(&self, from: u32, to: u32) -> Option<usize> {
        let step = to.wrapping_sub(from);
        let ahead = to.wrapping_add(step.wrapping_mul(AHEAD)) as usize;
        let entry = self.entries.get(ahead).filter(|_| step.wrapping_add(1) <= 2)?;
        prefetch(entry);
        Some(ahead)
    }

    /// Whether an entry is the block of `tokens` behind `parent`.
    #[inline]
    fn is(&self, entry: u32, parent: u32, extra: u128, tokens: &[u32], per_block: usize) -> bool {
        let known = &self.entries[entry as usize];
        known.parent == parent
            && known.extra == extra
            && same(&self.tokens[entry as usize * per_block..][..per_block], tokens)
    }

    #[inline]
    fn stored(&mut self, entry: u32, per_block: usize) {
        if let Some(events) = &mut self.events {
            let known = &self.entries[entry as usize];
            let tokens = &self.tokens[entry as usize * per_block..][..per_block];
            events.stored(entry, known.parent, known.extra, tokens);
        }
    }
}

/// Books of `count` entries, if there is memory for them.
pub(super) fn filled<T: Clone>(count: usize, value: T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize(count, value);
    Some(all.into_boxed_slice())
}

/// Sixteen tokens a block is what everybody has; comparing those is a few instructions, and a call costs as much as they do.
#[inline]
fn same(a: &[u32], b: &[u32]) -> bool {
    match (a.as_chunks::<16>(), b.as_chunks::<16>()) {
        (([a], []), ([b], [])) => a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0,
        _ => a == b,
    }
}

#[inline]
fn copy(to: &mut [u32], from: &[u32]) {
    match (to.as_chunks_mut::<16>(), from.as_chunks::<16>()) {
        (([to], []), ([from], [])) => *to = *from,
        _ => to.copy_from_slice(from),
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
