//! The cached blocks as a tree of runs: blocks behind each other, with nothing branching off between them.
//!
//! A prompt that was published at once is one run. Its tokens lie together, so that they are compared, copied and given up in one
//! sweep; where a prompt diverges, or a lease ends, a run is cut in two, which moves nothing.
//!
//! A cached block owns one referent of its block. A [lease](super::Lease) on the end of a run keeps it and everything before it, so a request
//! that starts with 256 cached blocks costs one count and not 256. `busy` counts the leases on the end of a run and the busy runs right
//! behind it: zero means that nothing needs its blocks, and those are what eviction can take.

mod find;
mod publish;
mod walk;

use std::sync::PoisonError;

use super::{
    content::{Digest, Root},
    events::Events,
    hash::Keys,
    index::{Index, NONE},
    lease::At,
    slots::Slots,
    uses::{Tick, Uses},
};
use crate::{
    backend::{Words, books},
    pool::{
        core::SharedCore,
        sync::{AtomicU32, Mutex, MutexGuard, Ordering},
    },
};

pub(super) use walk::{Name, Path, RootName, SpillFrom};

/// A number that no other run has or had.
type Stamp = u64;

/// A cached block, for whoever keeps it by nothing: its slot may have another one later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    slot: u32,
    /// Blocks from the root on.
    pub(super) depth: u32,
    /// Of its run: no run is in a slot again that it gave up.
    stamp: Stamp,
}

/// Blocks behind each other, in neighbouring slots; in one cache line.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Run {
    /// Where its first block is in the index; zero when it is not, having been an only child so far.
    pub(super) hash: u64,
    pub(super) used: Tick,
    /// Of a root its number, or zero when it was forgotten. Of others their stamp, which both parts keep when a run is cut.
    number: u64,
    /// [`NONE`] for a root.
    pub(super) parent: u32,
    /// The slots of its blocks. A root has none.
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) busy: u32,
    /// The runs right behind this one, as a list.
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// In the order of use, if it is `listed`.
    pub(super) older: u32,
    pub(super) newer: u32,
    pub(super) listed: bool,
    /// Nothing is in its blocks besides tokens.
    plain: bool,
    /// A block was right behind its end with the same stamp: it does not grow any more.
    pub(super) shut: bool,
}

pub(super) const VACANT: Run = Run {
    hash: 0,
    used: 0,
    number: 0,
    parent: NONE,
    start: NONE,
    len: 0,
    busy: 0,
    first_child: NONE,
    next: NONE,
    previous: NONE,
    older: NONE,
    newer: NONE,
    listed: false,
    plain: true,
    shut: false,
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
    /// Blocks that nothing needs, for whoever asks without waiting.
    idle: AtomicU32,
    state: Mutex<State>,
}

pub(super) struct State {
    /// As many as there may be blocks, and the roots behind those.
    pub(super) runs: Box<[Run]>,
    /// Of each slot: its block, or [`NONE`]; its tokens; what the caller says is in the block besides those, where that is not
    /// nothing for the whole run; and the run of the latest block that was there.
    pub(super) blocks: Box<[u32]>,
    tokens: Words,
    extras: Box<[u128]>,
    run_of: Box<[u32]>,
    /// Slots, and runs, that nothing is in.
    pub(super) slots: Slots,
    pub(super) vacant: Vec<u32>,
    vacant_roots: Vec<u32>,
    /// Digest of the key, number and run of each root.
    pub(super) roots: Vec<(Digest, u64, u32)>,
    /// Forgotten roots that something is still behind.
    pub(super) retired: Vec<u32>,
    pub(super) index: Index,
    pub(super) uses: Uses,
    latest: Stamp,
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
        // A root's digest has the place of its run, which is behind those of the slots.
        let events = if events > 0 { Some(Events::new(count, events)?) } else { None };
        let state = State {
            runs: filled(count, VACANT)?,
            blocks: filled(most, NONE)?,
            tokens: Words::new(most.checked_mul(per_block)?)?,
            extras: filled(most, 0)?,
            run_of: filled(most, NONE)?,
            slots: Slots::new(most),
            vacant: (0..most as u32).rev().collect(),
            vacant_roots: (most as u32..count as u32).rev().collect(),
            roots: Vec::with_capacity(roots),
            retired: Vec::with_capacity(roots),
            index: Index::new(most)?,
            uses: Uses::new(),
            latest: 0,
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

    /// Evicts blocks, the ones unused for longest first, for as long as `free` takes them: see [`State::evict`].
    pub(crate) fn evict(&self, free: impl FnMut(&[u32], usize) -> usize) {
        self.lock().evict(free);
    }

    /// The blocks that nothing but the cache needs.
    pub(crate) fn each_idle(&self, mut see: impl FnMut(u32)) {
        let state = self.lock();
        let idle = (0..state.runs.len() as u32).filter(|run| state.runs[*run as usize].busy == 0);
        idle.for_each(|run| state.blocks_of(run).iter().for_each(|block| see(*block)));
    }

    /// The number and run of the root of `digest`: a new one with nothing behind it, unless there is one. `None` when all are taken.
    pub(super) fn add_root(&self, digest: Digest) -> Option<(u64, u32)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        // Under one lock with adding it: of two roots of one key, only one would be forgotten.
        if let Some((_, number, run)) = state.roots.iter().find(|(known, ..)| *known == digest) {
            return Some((*number, *run));
        }
        // Forgotten ones go when nothing is behind them any more.
        let State { runs, retired, vacant_roots, .. } = state;
        retired.retain(|root| {
            let is_empty = runs[*root as usize].first_child == NONE && runs[*root as usize].busy == 1;
            if is_empty {
                runs[*root as usize] = VACANT;
                vacant_roots.push(*root);
            }
            !is_empty
        });
        if state.roots.len() + state.retired.len() == self.roots {
            return None;
        }
        let run = state.vacant_roots.pop()?;
        // Busy for as long as it is there, so that it is neither counted nor evicted.
        let number = crate::next_id();
        state.runs[run as usize] = Run { busy: 1, number, ..VACANT };
        state.roots.push((digest, number, run));
        if let Some(events) = &mut state.events {
            events.root(run, digest);
        }
        Some((number, run))
    }

    /// Forgets a root: what is behind it is found by nobody again.
    pub(super) fn forget(&self, number: u64) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(index) = state.roots.iter().position(|(_, known, _)| *known == number) else { return false };
        let (_, _, root) = state.roots.swap_remove(index);
        // Not the number of any root that is handed out: lookups compare it.
        state.runs[root as usize].number = 0;
        state.retired.push(root);
        state.empty(root, |blocks| self.core.release_all(blocks));
        true
    }
}

impl State {
    /// The run of a root that was not forgotten.
    pub(super) fn root(&self, root: Root) -> Option<u32> {
        let known = self.runs.get(root.run as usize)?;
        (known.parent == NONE && known.number == root.number).then_some(root.run)
    }

    /// The blocks of a run.
    #[inline]
    pub(super) fn blocks_of(&self, run: u32) -> &[u32] {
        let Run { start, len, .. } = self.runs[run as usize];
        if len == 0 { &[] } else { &self.blocks[start as usize..][..len as usize] }
    }

    /// Cuts a run after its first `keep` blocks, unless it ends there. Returns the first part; the rest keeps the run's number, as its leases,
    /// what is behind it, and the order of use know it.
    pub(super) fn cut(&mut self, run: u32, keep: usize) -> u32 {
        let Run { hash, number, parent, start, len, busy, next, previous, plain, .. } = self.runs[run as usize];
        if keep as u32 == len {
            return run;
        }
        // A run has a block at least, and this one has more, so not all are in use.
        let Some(first) = self.vacant.pop() else { unreachable!("there are as many runs as blocks") };
        let keep = keep as u32;
        self.runs[first as usize] = Run {
            hash,
            // Its only use is that of the rest, so far.
            used: 0,
            number,
            parent,
            start,
            len: keep,
            busy: u32::from(busy > 0),
            first_child: run,
            next,
            previous,
            plain,
            shut: true,
            ..VACANT
        };
        match previous {
            NONE => self.runs[parent as usize].first_child = first,
            previous => self.runs[previous as usize].next = first,
        }
        if next != NONE {
            self.runs[next as usize].previous = first;
        }
        if hash != 0 {
            self.index.remove(hash, run);
            self.index.insert(hash, first);
        }
        self.run_of[start as usize..][..keep as usize].fill(first);
        let rest = &mut self.runs[run as usize];
        (rest.hash, rest.parent, rest.start, rest.len) = (0, first, start + keep, len - keep);
        (rest.next, rest.previous) = (NONE, NONE);
        first
    }

    /// Shortens a lease to the first `depth` blocks of its path: where it ends then.
    pub(super) fn shorten(&mut self, at: At, depth: usize) -> At {
        let mut short = at;
        while short.depth as usize > depth {
            let Run { len, parent, .. } = self.runs[short.run as usize];
            let before = short.depth - len;
            short = match (depth as u32).checked_sub(before) {
                Some(keep) if keep > 0 => At { run: self.cut(short.run, keep as usize), depth: depth as u32, ..at },
                _ => At { run: parent, depth: before, ..at },
            };
        }
        self.begin(short.run);
        self.end(at.run);
        short
    }
}

/// Books of `count` slots, if there is memory for them.
pub(super) fn filled<T: Clone>(count: usize, value: T) -> Option<Box<[T]>> {
    books(count, || value.clone())
}

impl Drop for Tree {
    fn drop(&mut self) {
        // No lease is left: each holds the tree.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for block in state.blocks.iter().filter(|block| **block != NONE) {
            self.core.release(*block);
        }
    }
}
