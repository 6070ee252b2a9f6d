//! Looking at what is cached without changing it, or the order in which it will be evicted.

use super::{At, Digest, Entry, NONE, Stamp, State, Tick, Tree};

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

/// An entry, as an export names it.
#[derive(Clone, Copy)]
pub(in super::super) struct Name {
    entry: u32,
    /// Tells it from a later one in its place, and what is before it: that stays for as long as this does.
    stamp: Stamp,
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

impl Tree {
    /// The path whose last block would be evicted next among those last used after `after`, at most its first `most` blocks, and when
    /// it was used. Each of its blocks gets a referent.
    pub(in super::super) fn coldest(&self, after: Tick, most: usize, path: &mut Path) -> Option<Tick> {
        let state = self.lock();
        let (tick, entry) = state.uses.after(after).find(|(tick, entry)| {
            let known = &state.entries[*entry as usize];
            known.used == *tick && known.busy == 0 && known.first_child == NONE
        })?;
        state.path(entry, most, self.per_block, path);
        path.blocks.iter().for_each(|block| self.core.share(*block));
        Some(tick)
    }

    /// The path to `at`, if that is still what had `stamp`, behind a root that was not forgotten. Without referents.
    pub(in super::super) fn path_to(&self, at: At, stamp: Stamp, path: &mut Path) -> bool {
        self.lock().path_to(at, stamp, self.per_block, path)
    }

    /// The same; each of its blocks gets a referent.
    pub(in super::super) fn held_path_to(&self, at: At, stamp: Stamp, path: &mut Path) -> bool {
        let state = self.lock();
        let is_there = state.path_to(at, stamp, self.per_block, path);
        path.blocks.iter().filter(|_| is_there).for_each(|block| self.core.share(*block));
        is_there
    }

    /// Names of all entries behind roots that were not forgotten, parents first, those roots, and all tokens.
    pub(in super::super) fn names(&self) -> (Vec<Name>, Vec<RootName>, Vec<u32>) {
        let state = self.lock();
        let mut names = Vec::with_capacity(state.cached as usize);
        let mut tokens = Vec::with_capacity(state.cached as usize * self.per_block);
        let root = |(digest, number, _): &(Digest, u64, u32)| RootName { digest: *digest, number: *number };
        let roots = state.roots.iter().map(root).collect();
        for (root, (_, _, top)) in state.roots.iter().enumerate() {
            let (mut at, mut parent) = (*top, NONE);
            'down: loop {
                // Down as far as it goes, then up to the next sibling.
                let child = state.entries[at as usize].first_child;
                if child != NONE {
                    at = child;
                } else {
                    loop {
                        if at == *top {
                            break 'down;
                        }
                        let known = &state.entries[at as usize];
                        parent = names.get(parent as usize).map_or(NONE, |name: &Name| name.parent);
                        if known.next != NONE {
                            at = known.next;
                            break;
                        }
                        at = known.parent;
                    }
                }
                let Entry { stamp, extra, .. } = state.entries[at as usize];
                let name = Name { entry: at, stamp, parent, root: root as u32, extra };
                tokens.extend_from_slice(state.tokens_of(at, self.per_block));
                parent = names.len() as u32;
                names.push(name);
            }
        }
        (names, roots, tokens)
    }

    /// The block of a name, with a referent for the caller, if the entry is still the one that was named, and what is before it with it.
    pub(in super::super) fn still(&self, name: &Name, root: &RootName) -> Option<u32> {
        let state = self.lock();
        let known = &state.entries[name.entry as usize];
        let is_root = |(_, number, _): &(Digest, u64, u32)| *number == root.number;
        if known.stamp != name.stamp || !state.roots.iter().any(is_root) {
            return None;
        }
        self.core.share(known.block);
        Some(known.block)
    }
}

impl State {
    #[inline]
    pub(super) fn tokens_of(&self, entry: u32, per_block: usize) -> &[u32] {
        &self.tokens[entry as usize * per_block..][..per_block]
    }

    fn path_to(&self, at: At, stamp: Stamp, per_block: usize, path: &mut Path) -> bool {
        let is_there = self.stamp(at.entry) == stamp;
        if is_there {
            self.path(at.entry, usize::MAX, per_block, path);
        }
        is_there && path.root.is_some()
    }

    /// Fills `path` with the first `most` blocks of the path to `entry`.
    fn path(&self, entry: u32, most: usize, per_block: usize, path: &mut Path) {
        let (mut depth, mut at) = (0usize, entry);
        while self.entries[at as usize].block != NONE {
            (depth, at) = (depth + 1, self.entries[at as usize].parent);
        }
        path.root = self.roots.iter().find(|(_, _, root)| *root == at).map(|(digest, ..)| *digest);
        let keep = depth.min(most);
        path.tokens.clear();
        path.tokens.resize(keep * per_block, 0);
        path.extras.clear();
        path.extras.resize(keep, 0);
        path.blocks.clear();
        path.blocks.resize(keep, NONE);
        at = entry;
        for index in (0..depth).rev() {
            let known = &self.entries[at as usize];
            if index < keep {
                path.tokens[index * per_block..][..per_block].copy_from_slice(self.tokens_of(at, per_block));
                (path.extras[index], path.blocks[index]) = (known.extra, known.block);
            }
            at = known.parent;
        }
    }
}
