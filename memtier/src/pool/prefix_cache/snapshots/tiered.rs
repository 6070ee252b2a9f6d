//! Copies of in-place state that follow their prefixes into a second tier, and come back.
//!
//! Two lists, each over its own cache and its own pool, so each conserves its own blocks, as the two caches do. A copy goes
//! together with what the second cache lacks of its prefix; it is found there when both have arrived, by proof.

use std::sync::Arc;

use super::{
    super::{Contents, PrefixLease, TierError, TieredCache, spill::Sent, tree::Path},
    Snapshots,
};
use crate::{
    place::{OutsideCapture, Reached},
    pool::{AcquireBlocksError, PoolHandle, PoolView, Shareable, Ticket, kind::PoolKind},
    record::{Fence, Recorder, Settled},
    units::{Blocks, Tokens},
};

/// How many copies there may be. Everything is allocated when the lists are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotSpec {
    /// Copies beside the first tier.
    pub hot: usize,
    /// Copies beside the second.
    pub cold: usize,
    /// Copies on their way to the second at a time.
    pub moving: usize,
    /// The longest prefix that one is at the end of: at most [`TierSpec::longest`](crate::TierSpec::longest).
    pub longest: Tokens,
}

/// What both lists hold, and did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SnapshotStats {
    /// Copies beside the first tier.
    pub hot: usize,
    /// Copies beside the second.
    pub cold: usize,
    /// Blocks of the second pool that copies hold, there or on their way.
    pub cold_blocks: Blocks,
    /// Copies on their way.
    pub moving: usize,
    /// Copies that arrived in the second tier.
    pub spilled: u64,
    /// Copies that were found there, and not nearer.
    pub restored: u64,
}

/// [`Snapshots`] of a [`TieredCache`]: what is about to be given up in the first tier is kept beside the second.
pub struct TieredSnapshots<W: PoolKind> {
    hot: Snapshots<W>,
    cold: Snapshots<W>,
    moving: Vec<Moving<W>>,
    /// Tickets without blocks.
    spare: Vec<Arc<Ticket<W>>>,
    paths: Vec<Path>,
    second: PoolHandle<W>,
    spilled: u64,
    restored: u64,
}

/// A copy on its way.
struct Moving<W: PoolKind> {
    state: Arc<Ticket<W>>,
    /// What it is at the end of.
    path: Path,
    /// Tokens that its blocks hold.
    tokens: Tokens,
    /// Whether a fence stands behind it.
    sent: bool,
}

/// State that a request can start with, and where it is. Keeps both, and the prefix in the second tier.
#[must_use = "copy it into the request"]
pub struct FoundState<K: Shareable, W: PoolKind> {
    state: Arc<Ticket<W>>,
    blocks: Blocks,
    /// Where the state is in the second tier: keeps the prefix there until it is restored.
    prefix: Option<PrefixLease<K>>,
}

impl<W: PoolKind> TieredSnapshots<W> {
    /// Copies beside `tiers`: those of the second in blocks of `second`.
    ///
    /// # Errors
    /// [`TierError::Nothing`].
    pub fn new<K: Shareable>(
        tiers: &TieredCache<K>,
        second: &PoolHandle<W>,
        spec: SnapshotSpec,
    ) -> Result<Self, TierError> {
        let SnapshotSpec { hot, cold, moving, longest } = spec;
        let per_block = tiers.hot().per_block();
        let blocks = (longest.count() / per_block.count().max(1)) as usize;
        if moving == 0 || blocks == 0 {
            return Err(TierError::Nothing { paths: moving, longest });
        }
        let path = |_| Path::with_room(blocks, per_block.count() as usize);
        Ok(TieredSnapshots {
            hot: Snapshots::new(tiers.hot(), hot),
            cold: Snapshots::new(tiers.cold(), cold),
            moving: Vec::with_capacity(moving),
            spare: (0..cold + moving).map(|_| Arc::new(second.open(longest))).collect(),
            paths: (0..moving).map(path).collect(),
            second: second.clone(),
            spilled: 0,
            restored: 0,
        })
    }

    /// Those beside the first tier: [`keep`](Snapshots::keep) puts them there.
    pub fn hot(&self) -> &Snapshots<W> {
        &self.hot
    }

    /// The same, to change.
    pub fn hot_mut(&mut self) -> &mut Snapshots<W> {
        &mut self.hot
    }

    /// Those beside the second.
    pub fn cold(&self) -> &Snapshots<W> {
        &self.cold
    }

    /// The same, to change.
    pub fn cold_mut(&mut self) -> &mut Snapshots<W> {
        &mut self.cold
    }

    /// What there is.
    pub fn stats(&self) -> SnapshotStats {
        let moving: u64 = self.moving.iter().map(|moving| moving.state.blocks().count()).sum();
        SnapshotStats {
            hot: self.hot.len(),
            cold: self.cold.len(),
            cold_blocks: Blocks::new(self.cold.blocks().count() + moving),
            moving: self.moving.len(),
            spilled: self.spilled,
            restored: self.restored,
        }
    }

    /// Whether a copy beside the first tier has no place in the second yet: the next one that is kept may end it.
    pub fn is_behind(&self) -> bool {
        self.hot.kept.iter().any(|kept| !kept.is_done)
    }

    /// Sends up to `most` copies to the second tier, those unused for longest first, each with the blocks that the second cache lacks of its
    /// prefix, in stream order. Tell of the step's fence with [`sent`](TieredSnapshots::sent), and the [cache](TieredCache::sent) with it;
    /// [`settle`](TieredSnapshots::settle) after the cache's.
    ///
    /// `prefix` and `states` are the views of both pools, first tier first. Returns how many copies are on their way because of it, and with how
    /// many blocks of prefixes.
    ///
    /// # Errors
    /// [`TierError`]; what was launched before stays on its way.
    pub fn spill<K, P, H, C>(
        &mut self,
        on: &Recorder<P>,
        tiers: &mut TieredCache<K>,
        prefix: (&PoolView<'_, K, H>, &mut PoolView<'_, K, C>),
        states: (&PoolView<'_, W, H>, &mut PoolView<'_, W, C>),
        most: usize,
    ) -> Result<(usize, Blocks), TierError>
    where
        K: Shareable,
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        if !states.1.is_of(self.second.core()) {
            return Err(TierError::ForeignPool { tier: "second" });
        }
        let (mut sent, mut blocks) = (0, 0);
        while sent < most
            && let Some(index) = self.next_to_spill()
        {
            let at = self.hot.kept[index].at;
            let (prefix, more) = tiers.send_path(on, prefix.0, prefix.1, at)?;
            blocks += more;
            match prefix {
                Sent::Whole => {}
                Sent::Later => break,
                Sent::No => {
                    self.hot.kept[index].is_done = true;
                    continue;
                }
            }
            if self.is_there(tiers, index)? {
                self.hot.kept[index].is_done = true;
                continue;
            }
            match self.copy(on, states.0, states.1, index)? {
                Sent::Whole => (self.hot.kept[index].is_done, sent) = (true, sent + 1),
                Sent::Later => break,
                Sent::No => self.hot.kept[index].is_done = true,
            }
        }
        Ok((sent, Blocks::new(blocks)))
    }

    fn next_to_spill(&self) -> Option<usize> {
        let waits = self.hot.kept.iter().enumerate().filter(|(_, kept)| !kept.is_done);
        waits.min_by_key(|(_, kept)| kept.used).map(|(index, _)| index)
    }

    /// Whether the second tier has a copy behind the same prefix, which counts as used now.
    fn is_there<K: Shareable>(&mut self, tiers: &TieredCache<K>, index: usize) -> Result<bool, TierError> {
        let Some(mut path) = self.paths.pop() else { return Ok(false) };
        let at = self.hot.kept[index].at;
        let arrived = match self.hot.tree.path_to(at, &mut path) {
            true => tiers.arrived(&path),
            false => Ok(None),
        };
        self.paths.push(path);
        Ok(arrived?.is_some_and(|lease| self.cold.touch(lease.lease())))
    }

    /// Copies one state into blocks of the second pool.
    fn copy<P, H, C>(
        &mut self,
        on: &Recorder<P>,
        first: &PoolView<'_, W, H>,
        second: &mut PoolView<'_, W, C>,
        index: usize,
    ) -> Result<Sent, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        let kept = &self.hot.kept[index];
        let (at, from) = (kept.at, kept.state.clone());
        if self.cold.most == 0 || from.blocks() > second.committed() {
            return Ok(Sent::No);
        }
        let Some(mut path) = self.paths.pop() else { return Ok(Sent::Later) };
        if at.depth as usize * self.hot.tree.per_block > path.tokens.capacity() || !self.hot.tree.path_to(at, &mut path)
        {
            self.paths.push(path);
            return Ok(Sent::No);
        }
        self.make_room(from.blocks());
        let mut state = self.spare.pop().unwrap_or_else(|| Arc::new(self.second.open(from.capacity())));
        let copied = match Arc::get_mut(&mut state) {
            Some(to) => copy_state(on, first, second, &from, to),
            None => unreachable!("a spare ticket is nobody else's"),
        };
        match copied {
            Ok(tokens) => {
                self.moving.push(Moving { state, path, tokens, sent: false });
                Ok(Sent::Whole)
            }
            Err(error) => {
                self.spare.push(state);
                self.paths.push(path);
                match error {
                    // Somebody else has them, or a launch.
                    TierError::Full(AcquireBlocksError::Full { .. }) => Ok(Sent::Later),
                    error => Err(error),
                }
            }
        }
    }

    /// Gives up copies of the second tier until as many blocks could be free.
    fn make_room(&mut self, needed: Blocks) {
        let mut free = self.second.free();
        while free < needed
            && let Some(state) = self.cold.take_oldest()
        {
            free = Blocks::new(free.count() + state.blocks().count());
            reuse(&mut self.spare, state);
        }
    }

    /// The copies since the last call were launched in the step that ends with this fence.
    ///
    /// # Errors
    /// [`TierError::Advance`] for the fence of another stream, or of an earlier step.
    pub fn sent(&mut self, fence: &Fence) -> Result<(), TierError> {
        for moving in self.moving.iter_mut().filter(|moving| !moving.sent) {
            if let Some(state) = Arc::get_mut(&mut moving.state) {
                state.advance(moving.tokens, fence)?;
            }
            moving.sent = true;
        }
        Ok(())
    }

    /// Keeps what is in the second tier by this proof, where its prefix has arrived: after [`TieredCache::settle`] with the same. Copies that it
    /// does not cover stay on their way.
    ///
    /// Returns how many copies.
    ///
    /// # Errors
    /// [`TierError::Cache`]; a copy whose prefix could not be looked up is not kept.
    pub fn settle<K: Shareable>(&mut self, tiers: &TieredCache<K>, settled: &Settled) -> Result<usize, TierError> {
        let (mut arrived, mut result, mut index) = (0, Ok(()), 0);
        while let Some(moving) = self.moving.get(index) {
            if !moving.sent || moving.state.written(settled).is_err() {
                index += 1;
                continue;
            }
            let Moving { state, path, .. } = self.moving.remove(index);
            match tiers.arrived(&path) {
                Ok(Some(lease)) => {
                    let spare = &mut self.spare;
                    let is_kept = self.cold.keep_at(lease.lease(), state, settled, |gone| reuse(spare, gone));
                    arrived += usize::from(is_kept);
                }
                lost => {
                    reuse(&mut self.spare, state);
                    result = result.and(lost.map(drop).map_err(TierError::from));
                }
            }
            self.paths.push(path);
        }
        self.spilled += arrived as u64;
        result.map(|()| arrived)
    }

    /// The longest part of a prompt that there is state for, in either tier: `lease` is what the first has of it. Shorten the lease to
    /// [`FoundState::blocks`], open the request, [restore](TieredCache::restore) so many blocks of the prompt, and
    /// [copy](FoundState::copy) the state.
    ///
    /// # Errors
    /// [`TierError::Cache`].
    pub fn find<K: Shareable>(
        &mut self,
        tiers: &TieredCache<K>,
        lease: &PrefixLease<K>,
        content: &impl Contents,
    ) -> Result<Option<FoundState<K, W>>, TierError> {
        let near = self.hot.find(lease);
        let far = match tiers.lookup_cold(content)? {
            // What is nearer is as long, at least.
            Some(prefix) if near.as_ref().is_none_or(|(blocks, _)| *blocks < prefix.blocks()) => {
                self.cold.find(&prefix).map(|(blocks, state)| (blocks, state, prefix))
            }
            _ => None,
        };
        let near_blocks = near.as_ref().map_or(Blocks::ZERO, |(blocks, _)| *blocks);
        Ok(match (near, far) {
            (_, Some((blocks, state, prefix))) if blocks > near_blocks => {
                self.restored += 1;
                Some(FoundState { state, blocks, prefix: Some(prefix) })
            }
            (near, _) => near.map(|(blocks, state)| FoundState { state, blocks, prefix: None }),
        })
    }
}

/// Empties a ticket for the next copy, unless a request still reads it.
fn reuse<W: PoolKind>(spare: &mut Vec<Arc<Ticket<W>>>, mut state: Arc<Ticket<W>>) {
    if let Some(ticket) = Arc::get_mut(&mut state).filter(|_| spare.len() < spare.capacity()) {
        ticket.truncate(Blocks::ZERO);
        spare.push(state);
    }
}

/// Copies the blocks of `from` into `to`, which has none, and says how many tokens they hold. `to` has none after an error.
fn copy_state<W, P, From, To>(
    on: &Recorder<P>,
    first: &PoolView<'_, W, From>,
    second: &mut PoolView<'_, W, To>,
    from: &Ticket<W>,
    to: &mut Ticket<W>,
) -> Result<Tokens, TierError>
where
    W: PoolKind,
    P: OutsideCapture,
    From: OutsideCapture + Reached<P>,
    To: OutsideCapture + Reached<P>,
{
    let mut copy = || {
        for index in open_like(from, to)? {
            on.copy_across(&mut second.block_mut(to, index)?, first.block(from, index)?)?;
        }
        Ok(Tokens::new(from.tokens().count().saturating_sub(to.tokens().count())))
    };
    copy().inspect_err(|_| to.truncate(Blocks::ZERO))
}

/// Gives `to`, which has no blocks, those at the places where `from` has some. The places.
fn open_like<'f, W: PoolKind>(
    from: &'f Ticket<W>,
    to: &mut Ticket<W>,
) -> Result<impl Iterator<Item = usize> + use<'f, W>, TierError> {
    let ids = from.ids().len();
    let first = (0..ids).find(|index| from.has(*index)).unwrap_or(ids);
    let end = (first..ids).rev().find(|index| from.has(*index)).map_or(first, |last| last + 1);
    to.skip(Blocks::new(first as u64));
    to.push(Blocks::new((end - first) as u64))?;
    (first..end).filter(|index| !from.has(*index)).for_each(|index| to.evict(index));
    Ok((first..end).filter(|index| from.has(*index)))
}

impl<K: Shareable, W: PoolKind> FoundState<K, W> {
    /// Blocks of the prompt that it is the state behind.
    pub fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Whether it is in the second tier.
    pub fn is_cold(&self) -> bool {
        self.prefix.is_some()
    }

    /// Copies it into a request that has no blocks, in stream order: later launches of the step may read it.
    /// [`advance`](Ticket::advance) the request by what this returns when the step has ended.
    ///
    /// # Errors
    /// [`TierError`]; the request has no blocks then.
    pub fn copy<P, H, C>(
        &self,
        on: &Recorder<P>,
        first: &mut PoolView<'_, W, H>,
        second: &PoolView<'_, W, C>,
        to: &mut Ticket<W>,
    ) -> Result<Tokens, TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        if self.is_cold() {
            return copy_state(on, second, first, &self.state, to);
        }
        let mut copy = || {
            for index in open_like(&self.state, to)? {
                let (from, mut into) = first.copy_pair((&self.state, index), (&mut *to, index))?;
                on.copy_across(&mut into, from)?;
            }
            Ok(Tokens::new(self.state.tokens().count().saturating_sub(to.tokens().count())))
        };
        copy().inspect_err(|_| to.truncate(Blocks::ZERO))
    }
}

impl<W: PoolKind> std::fmt::Debug for TieredSnapshots<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} before {:?}, {} on their way", self.hot, self.cold, self.moving.len())
    }
}

impl<K: Shareable, W: PoolKind> std::fmt::Debug for FoundState<K, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "state behind {} in the {} tier", self.blocks, if self.is_cold() { "second" } else { "first" })
    }
}
