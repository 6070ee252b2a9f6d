//! Looking at what is cached without changing it, or the order in which it will be evicted.

use super::{Digest, NONE, Place, Run, State, Tick, Tree};

/// A cached path, as it is copied elsewhere. Its lists are used again.
#[derive(Default)]
pub(in super::super) struct Path {
    /// Of its root.
    pub(in super::super) root: Option<Digest>,
    pub(in super::super) tokens: Vec<u32>,
    /// One a block.
    pub(in super::super) extras: Vec<u128>,
    /// The blocks, with a referent each that the holder gives back.
    pub(in super::super) blocks: Vec<u32>,
}

/// Where a search for the coldest path goes on.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct SpillFrom {
    /// Paths last used up to here are done.
    done: Tick,
    /// The run that was looked at last, and when it was used: if it was not used again, the search goes on behind it.
    run: u32,
    used: Tick,
}

/// A cached block, as an export names it.
#[derive(Clone, Copy)]
pub(in super::super) struct Name {
    /// What is before it stays for as long as it does.
    at: Place,
    /// Its parent's position in the list; [`NONE`] behind a root.
    pub(in super::super) parent: u32,
    /// Position of its root.
    pub(in super::super) root: u32,
    pub(in super::super) extra: u128,
}

/// A root, as an export names it.
#[derive(Clone, Copy)]
pub(in super::super) struct RootName {
    pub(in super::super) digest: Digest,
    /// Not that of a later root of the same digest.
    number: u64,
}

impl Path {
    /// Room for `blocks`, so that filling it allocates nothing.
    pub(in super::super) fn with_room(blocks: usize, per_block: usize) -> Self {
        Path {
            root: None,
            tokens: Vec::with_capacity(blocks * per_block),
            extras: Vec::with_capacity(blocks),
            blocks: Vec::with_capacity(blocks),
        }
    }
}

/// Runs that one search for the coldest path looks at. Where that is not enough, the next one goes on.
const LOOK: usize = 1024;

impl Tree {
    /// The path whose last block would be evicted next among those last used after `from`, at most its first `most` blocks. Each of its
    /// blocks gets a referent. Says where to go on: behind it, if there is one, or else behind what was looked at.
    pub(in super::super) fn coldest(&self, from: &mut SpillFrom, most: usize, path: &mut Path) -> Option<SpillFrom> {
        let state = self.lock();
        let known = state.runs.get(from.run as usize);
        let mut next = match known.filter(|known| known.listed && known.used == from.used) {
            Some(known) => known.newer,
            None => state.uses.oldest().unwrap_or(NONE),
        };
        for _ in 0..LOOK {
            let known = state.runs.get(next as usize)?;
            let (run, used) = (next, known.used);
            if used > from.done && known.busy == 0 && known.first_child == NONE {
                state.path(next, most, self.per_block, path);
                path.blocks.iter().for_each(|block| self.core.share(*block));
                return Some(SpillFrom { done: used, run, used });
            }
            next = known.newer;
            *from = SpillFrom { run, used, ..*from };
        }
        None
    }

    /// The path to a block, if it is still there, behind a root that was not forgotten. Without referents.
    pub(in super::super) fn path_to(&self, at: Place, path: &mut Path) -> bool {
        self.lock().path_to(at, self.per_block, path)
    }

    /// The same; each of its blocks gets a referent.
    pub(in super::super) fn held_path_to(&self, at: Place, path: &mut Path) -> bool {
        let state = self.lock();
        let is_there = state.path_to(at, self.per_block, path);
        path.blocks.iter().filter(|_| is_there).for_each(|block| self.core.share(*block));
        is_there
    }

    /// Names of all blocks behind roots that were not forgotten, parents first, those roots, and all tokens.
    pub(in super::super) fn names(&self) -> (Vec<Name>, Vec<RootName>, Vec<u32>) {
        let state = self.lock();
        let mut names = Vec::with_capacity(state.cached as usize);
        let mut tokens = Vec::with_capacity(state.cached as usize * self.per_block);
        let root = |(digest, number, _): &(Digest, u64, u32)| RootName { digest: *digest, number: *number };
        let roots = state.roots.iter().map(root).collect();
        for (root, (_, _, top)) in state.roots.iter().enumerate() {
            // The run, and the position of its last block.
            let (mut at, mut last) = (*top, NONE);
            'down: loop {
                // Down as far as it goes, then up to the next sibling.
                let child = state.runs[at as usize].first_child;
                if child != NONE {
                    at = child;
                } else {
                    loop {
                        if at == *top {
                            break 'down;
                        }
                        let Run { len, next, parent, .. } = state.runs[at as usize];
                        let first = last.wrapping_sub(len - 1) as usize;
                        last = names.get(first).map_or(NONE, |name: &Name| name.parent);
                        at = parent;
                        if next != NONE {
                            at = next;
                            break;
                        }
                    }
                }
                let run = &state.runs[at as usize];
                for (index, slot) in (run.start..run.start + run.len).enumerate() {
                    let extra = state.extra(run, index);
                    let depth = names.get(last as usize).map_or(0, |before| before.at.depth) + 1;
                    let at = Place { slot, depth, stamp: run.number };
                    names.push(Name { at, parent: last, root: root as u32, extra });
                    last = names.len() as u32 - 1;
                    tokens.extend_from_slice(state.tokens_of(slot as usize, self.per_block));
                }
            }
        }
        (names, roots, tokens)
    }

    /// The block of a name, with a referent for the caller, if it is still the one that was named, and what is before it with it.
    pub(in super::super) fn still(&self, name: &Name, root: &RootName) -> Option<u32> {
        let state = self.lock();
        let is_root = |(_, number, _): &(Digest, u64, u32)| *number == root.number;
        if !state.is_cached(name.at) || !state.roots.iter().any(is_root) {
            return None;
        }
        let block = state.blocks[name.at.slot as usize];
        self.core.share(block);
        Some(block)
    }
}

impl State {
    fn path_to(&self, at: Place, per_block: usize, path: &mut Path) -> bool {
        let is_there = self.is_cached(at);
        if is_there {
            self.path(self.run_of[at.slot as usize], at.depth as usize, per_block, path);
        }
        is_there && path.root.is_some()
    }

    /// Fills `path` with the first `most` blocks of the path to the end of a run.
    fn path(&self, run: u32, most: usize, per_block: usize, path: &mut Path) {
        let (mut depth, mut at) = (0usize, run);
        while self.runs[at as usize].parent != NONE {
            (depth, at) = (depth + self.runs[at as usize].len as usize, self.runs[at as usize].parent);
        }
        path.root = self.roots.iter().find(|(_, _, root)| *root == at).map(|(digest, ..)| *digest);
        let keep = depth.min(most);
        path.tokens.clear();
        path.tokens.resize(keep * per_block, 0);
        path.extras.clear();
        path.extras.resize(keep, 0);
        path.blocks.clear();
        path.blocks.resize(keep, NONE);
        at = run;
        while depth > 0 {
            let known = &self.runs[at as usize];
            let (start, len) = (known.start as usize, known.len as usize);
            depth -= len;
            let count = len.min(keep.saturating_sub(depth));
            if count > 0 {
                let to = &mut path.tokens[depth * per_block..][..count * per_block];
                to.copy_from_slice(&self.tokens[start * per_block..][..count * per_block]);
                path.blocks[depth..][..count].copy_from_slice(&self.blocks[start..][..count]);
                let extras = path.extras[depth..][..count].iter_mut().enumerate();
                extras.for_each(|(index, extra)| *extra = self.extra(known, index));
            }
            at = known.parent;
        }
    }
}
