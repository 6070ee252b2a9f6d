//! What a cached prefix needs besides its blocks: state that is overwritten in place, as it was at the end of the prefix.
//!
//! The blocks of a sliding window, and the state of a recurrent layer, hold the latest tokens only. A request that starts behind a
//! prefix needs them as they were there, so a copy is kept: in blocks of the same pool, which no other request has.

mod export;
mod tiered;

use std::sync::Arc;

pub use export::KeptState;
pub use tiered::{FoundState, SnapshotSpec, SnapshotStats, TieredSnapshots};

use super::{Lease, PrefixCache, PrefixLease, Tree, tree::Place};
use crate::{
    pool::{Shareable, Ticket, kind::PoolKind},
    record::Settled,
    units::{Blocks, Tokens},
};

/// Copies of in-place state, each at the end of a cached prefix. Bounded; the one unused for longest goes first.
///
/// A copy whose prefix was evicted, or whose root was forgotten, is never found again and goes first of all.
pub struct Snapshots<W: PoolKind> {
    tree: Arc<Tree>,
    most: usize,
    now: u64,
    kept: Vec<Kept<W>>,
}

/// The first use's number: some before it are for copies that were there in another life.
const FIRST: u64 = 1 << 32;

struct Kept<W: PoolKind> {
    /// The end of the prefix.
    at: Place,
    used: u64,
    /// Whether a second tier has it, or has no room for it.
    is_done: bool,
    state: Arc<Ticket<W>>,
}

impl<W: PoolKind> Snapshots<W> {
    /// Room for `most` copies.
    #[must_use]
    pub fn new<K: Shareable>(cache: &PrefixCache<K>, most: usize) -> Self {
        Snapshots { tree: cache.tree.clone(), most, now: FIRST, kept: Vec::with_capacity(most) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Blocks that they hold.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.kept.iter().map(|kept| kept.state.blocks().count()).sum())
    }

    /// How many there may be.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether there is one at the end of what `ticket` has published.
    #[must_use]
    pub fn has<K: Shareable>(&self, ticket: &Ticket<K>) -> bool {
        ticket.lease.as_ref().is_some_and(|lease| self.has_at(lease))
    }

    /// Whether there is one at the end of a found prefix.
    #[must_use]
    pub fn has_behind<K: Shareable>(&self, lease: &PrefixLease<K>) -> bool {
        self.has_at(lease.lease())
    }

    fn has_at(&self, lease: &Lease) -> bool {
        if !Arc::ptr_eq(&lease.tree, &self.tree) {
            return false;
        }
        let here = self.tree.lock().place(lease.at);
        self.kept.iter().any(|kept| Some(kept.at) == here)
    }

    /// Keeps `state` as what the requests need that start behind what `ticket` has published. `settled` proves that the copy is in
    /// memory: copy, advance `state` with the fence, wait for it, then keep. Takes nothing from the heap. Returns whether it was kept:
    /// not where nothing is published, there is no room for any, or a launch that writes the state may be in flight.
    pub fn keep<K: Shareable>(&mut self, ticket: &Ticket<K>, state: Arc<Ticket<W>>, settled: &Settled) -> bool {
        let Some(lease) = &ticket.lease else { return false };
        self.keep_at(lease, state, settled, |_| ())
    }

    /// The same at the end of a found prefix: what is kept of it elsewhere, and comes back.
    pub fn keep_behind<K: Shareable>(
        &mut self,
        lease: &PrefixLease<K>,
        state: Arc<Ticket<W>>,
        settled: &Settled,
    ) -> bool {
        self.keep_at(lease.lease(), state, settled, |_| ())
    }

    /// The same where there is room, as the copy unused for longest: what a store has, the latest first.
    pub fn keep_as_oldest<K: Shareable>(
        &mut self,
        lease: &PrefixLease<K>,
        state: Arc<Ticket<W>>,
        settled: &Settled,
    ) -> bool {
        if self.kept.len() >= self.most || self.has_behind(lease) {
            return false;
        }
        let oldest = self.kept.iter().map(|kept| kept.used).min();
        let is_kept = self.keep_at(lease.lease(), state, settled, |_| ());
        if let (Some(oldest), Some(kept)) = (oldest, self.kept.last_mut().filter(|_| is_kept)) {
            kept.used = oldest.saturating_sub(1);
        }
        is_kept
    }

    /// `gone` gets what makes room.
    fn keep_at(
        &mut self,
        lease: &Lease,
        state: Arc<Ticket<W>>,
        settled: &Settled,
        mut gone: impl FnMut(Arc<Ticket<W>>),
    ) -> bool {
        let is_ours = Arc::ptr_eq(&lease.tree, &self.tree);
        if !is_ours || self.most == 0 || state.written(settled).is_err() {
            return false;
        }
        let Some(at) = self.tree.lock().place(lease.at) else { return false };
        if let Some(index) = self.kept.iter().position(|kept| kept.at == at) {
            gone(self.kept.swap_remove(index).state);
        }
        while self.kept.len() >= self.most
            && let Some(state) = self.take_oldest()
        {
            gone(state);
        }
        self.now += 1;
        self.kept.push(Kept { at, used: self.now, is_done: false, state });
        true
    }

    /// The longest part of a found prefix that there is state for, in blocks, and the state: copy it into the request's own blocks.
    pub fn find<K: Shareable>(&mut self, lease: &PrefixLease<K>) -> Option<(Blocks, Arc<Ticket<W>>)> {
        let lease = lease.lease();
        if !Arc::ptr_eq(&lease.tree, &self.tree) {
            return None;
        }
        let found = {
            let state = self.tree.lock();
            let on_path = |kept: &&mut Kept<W>| state.has_passed(lease.at, kept.at);
            self.kept.iter_mut().filter(on_path).max_by_key(|kept| kept.at.depth)
        }?;
        self.now += 1;
        found.used = self.now;
        Some((Blocks::new(u64::from(found.at.depth)), found.state.clone()))
    }

    /// Counts the copy at the end of a path as used now. Whether there is one.
    fn touch(&mut self, lease: &Lease) -> bool {
        if !Arc::ptr_eq(&lease.tree, &self.tree) {
            return false;
        }
        let here = self.tree.lock().place(lease.at);
        let kept = self.kept.iter_mut().find(|kept| Some(kept.at) == here);
        self.now += 1;
        kept.map(|kept| kept.used = self.now).is_some()
    }

    /// Gives up the copy unused for longest. Returns whether there was one.
    pub fn evict_one(&mut self) -> bool {
        self.take_oldest().is_some()
    }

    fn take_oldest(&mut self) -> Option<Arc<Ticket<W>>> {
        let oldest = {
            let state = self.tree.lock();
            let order = |kept: &Kept<W>| (state.is_cached(kept.at), kept.used);
            (0..self.kept.len()).min_by_key(|index| order(&self.kept[*index]))
        };
        oldest.map(|index| self.kept.swap_remove(index).state)
    }

    /// Tokens before each copy, for reports.
    pub fn tokens(&self) -> impl Iterator<Item = Tokens> + '_ {
        self.kept.iter().map(|kept| Tokens::new(u64::from(kept.at.depth) * self.tree.per_block as u64))
    }
}

impl<W: PoolKind> std::fmt::Debug for Snapshots<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} snapshots in {} {}", self.kept.len(), self.most, self.blocks(), W::NAME)
    }
}
