//! Saving states: beside the blocks that they are behind, under the same manifest.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering},
};

use memtier::{Bytes, Digest, OutsideCapture, PoolKind, PoolView, Recorder, Shareable, Snapshots, Ticket};

use super::{Saver, Segment};
use crate::{
    error::StoreError,
    format::{
        SEGMENT_HEADER,
        states::{self, ListName, RECORD, StateList, StateShape},
    },
    store::StoreSpec,
};

/// A list of a save under way, as the saver knows it.
pub(super) struct List {
    name: ListName,
    shape: Option<StateShape>,
    gathered: Arc<AtomicU32>,
    segments: Vec<(u64, u32)>,
    states: u64,
}

impl List {
    pub(super) fn finish(self) -> Result<StateList, StoreError> {
        let (given, expected) = (self.gathered.load(Ordering::Relaxed), self.segments.len() as u32);
        if given != expected {
            return Err(StoreError::Order { given, expected });
        }
        let shape = self.shape.unwrap_or(StateShape { tokens: 0, bytes: 0 });
        Ok(StateList { name: self.name, shape, states: self.states, segments: self.segments })
    }
}

/// Reads the states of one list for a save. Made by [`Saver::states`].
///
/// It keeps no state from making room: what went meanwhile is left out.
pub struct StateSaver<W: PoolKind> {
    list: usize,
    kept: Vec<(Digest, Digest, Weak<Ticket<W>>)>,
    next: usize,
    gathered: Arc<AtomicU32>,
    id: crate::format::SaveId,
    spec: StoreSpec,
}

impl<K: Shareable> Saver<K> {
    /// Begins a list of states: copies at the end of the prefixes that are saved, the one used last first. `name` tells it from others of the same
    /// save, for a model that has several.
    ///
    /// # Errors
    /// [`StoreError::List`].
    pub fn states<W: PoolKind>(&mut self, name: &str, snapshots: &Snapshots<W>) -> Result<StateSaver<W>, StoreError> {
        let known = ListName::new(name).filter(|name| self.lists.iter().all(|list| list.name != *name));
        let list_name = known.ok_or_else(|| StoreError::List { name: name.to_owned() })?;
        let gathered = Arc::new(AtomicU32::new(0));
        let (list, spec) = (self.lists.len(), self.store.spec);
        self.lists.push(List {
            name: list_name,
            shape: None,
            gathered: gathered.clone(),
            segments: Vec::new(),
            states: 0,
        });
        let kept = snapshots.export().into_iter();
        let kept = kept.map(|kept| (kept.digest, kept.root, Arc::downgrade(&kept.state))).collect();
        Ok(StateSaver { list, kept, next: 0, gathered, id: self.id, spec })
    }

    pub(super) async fn put_states(&mut self, list: usize, segment: &Segment) -> Result<(), StoreError> {
        let (store, id) = (self.store.clone(), self.id);
        let unknown = StoreError::Order { given: segment.ordinal, expected: 0 };
        let list = self.lists.get_mut(list).ok_or(unknown)?;
        let expected = list.segments.len() as u32;
        if segment.ordinal != expected {
            return Err(StoreError::Order { given: segment.ordinal, expected });
        }
        store.put(&store.states_path(id, list.name, segment.ordinal), segment.bytes.clone()).await?;
        list.segments.push((segment.bytes.len() as u64, crc32c::crc32c(&segment.bytes)));
        list.states += u64::from(segment.blocks);
        list.shape = states::shape_of(&segment.bytes);
        Ok(())
    }
}

/// Where a state's blocks are, if they are in one piece.
fn piece<W: PoolKind>(state: &Ticket<W>, per_block: u64) -> Option<std::ops::Range<u32>> {
    let end = u32::try_from(state.capacity().count() / per_block.max(1)).ok()?;
    let first = (0..end).find(|index| state.has(*index as usize))?;
    let piece = first..first + state.blocks().count() as u32;
    piece.clone().all(|index| state.has(index as usize)).then_some(piece)
}

impl<W: PoolKind> StateSaver<W> {
    /// Reads the next states, in a step, as [`Saver::gather`] reads blocks: [`put`](Saver::put) what it gives. States with holes between their
    /// blocks are left out.
    ///
    /// `None`: there are no more.
    ///
    /// # Errors
    /// [`StoreError::View`] for the view of another pool, [`StoreError::Launch`], [`StoreError::State`]. The save is over: begin another.
    pub fn gather<P: OutsideCapture>(
        &mut self,
        on: &Recorder<P>,
        view: &PoolView<'_, W, P>,
    ) -> Result<Option<Segment>, StoreError> {
        let (per_block, block) = (view.per_block().count(), view.block_bytes().count());
        let shape = StateShape { tokens: per_block, bytes: block };
        let StoreSpec { segment: target, most } = self.spec;
        let ordinal = self.gathered.load(Ordering::Relaxed);
        let mut bytes = states::begin_segment(shape, self.id, ordinal);
        let mut count = 0;
        while let Some((digest, root, state)) = self.kept.get(self.next) {
            let Some(state) = state.upgrade() else {
                self.next += 1;
                continue;
            };
            let Some(blocks) = piece(&state, per_block) else {
                self.next += 1;
                continue;
            };
            let more = RECORD as u64 + block.saturating_mul(blocks.len() as u64);
            let whole = bytes.len() as u64 + more;
            if count > 0 && whole > target.min(most).count() {
                break;
            }
            if whole > most.count() {
                return Err(StoreError::State { state: Bytes::new(more + SEGMENT_HEADER as u64), most });
            }
            bytes.reserve(more as usize);
            let tokens = state.tokens().count();
            states::push_record(&mut bytes, shape, [*digest, *root], tokens, blocks, |index, into| {
                Ok::<_, StoreError>(on.read_bytes(view.block(&state, index as usize)?, into)?)
            })?;
            count += 1;
            self.next += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        states::end_segment(&mut bytes, count);
        self.gathered.store(ordinal + 1, Ordering::Relaxed);
        Ok(Some(Segment { list: Some(self.list), ordinal, blocks: count, bytes: bytes.into() }))
    }
}

impl<W: PoolKind> std::fmt::Debug for StateSaver<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "save of {} states, {} done", self.kept.len(), self.next)
    }
}
