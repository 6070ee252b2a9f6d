//! Saving: blocks into segments in steps, segments into the store between them, the manifest last.

mod states;

use bytes::Bytes as Buffer;
use memtier::{Blocks, Bytes, Digest, Export, OutsideCapture, PoolView, PrefixCache, Recorder, Shareable};

pub use states::StateSaver;

use self::states::List;
use crate::{
    error::StoreError,
    format::{self, Manifest, SaveId, Shape},
    store::PrefixStore,
};

/// A save under way. Made by [`PrefixStore::save`].
///
/// Dropping it leaves what was put; nobody reads that while there is a manifest, and [`PrefixStore::sweep`] deletes it.
pub struct Saver<K> {
    store: PrefixStore,
    export: Export<K>,
    shape: Shape,
    id: SaveId,
    gathered: u32,
    roots: Vec<Digest>,
    segments: Vec<(u64, u32)>,
    blocks: u64,
    lists: Vec<List>,
}

/// Blocks or states with their names, complete in itself. Cheap to clone, to put it again when a store fails.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Which list of states; `None` for blocks.
    list: Option<usize>,
    ordinal: u32,
    /// Blocks, or states.
    blocks: u32,
    bytes: Buffer,
}

impl Segment {
    /// Blocks of the cache in it: none, where it has states.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(if self.list.is_none() { u64::from(self.blocks) } else { 0 })
    }

    /// States in it.
    pub fn states(&self) -> u64 {
        if self.list.is_some() { u64::from(self.blocks) } else { 0 }
    }

    /// Its size.
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.bytes.len() as u64)
    }
}

/// What was saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Blocks.
    pub blocks: Blocks,
    /// States, of all lists.
    pub states: u64,
    /// Objects besides the manifest.
    pub segments: u32,
    /// In all objects.
    pub bytes: Bytes,
}

impl<K: Shareable> Saver<K> {
    pub(crate) fn new(store: PrefixStore, cache: &PrefixCache<K>, id: SaveId) -> Result<Self, StoreError> {
        let shape = PrefixStore::shape_of(cache);
        let most = store.spec.most;
        let block = shape.record().map_or(Bytes::MAX, |record| Bytes::new((record + format::SEGMENT_HEADER) as u64));
        if block > most {
            return Err(StoreError::Block { block, most });
        }
        let (roots, segments, lists) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Saver { store, export: cache.export(), shape, id, gathered: 0, roots, segments, blocks: 0, lists })
    }

    /// Reads the next blocks, in a step: waits for what was launched before. What was evicted meanwhile is left out.
    ///
    /// `None`: there are no more, and it is time to [`commit`](Saver::commit).
    ///
    /// # Errors
    /// [`StoreError::View`] for the view of another pool, [`StoreError::Launch`]. The save is over: begin another.
    pub fn gather<P: OutsideCapture>(
        &mut self,
        on: &Recorder<P>,
        kv: &PoolView<'_, K, P>,
    ) -> Result<Option<Segment>, StoreError> {
        let each = self.shape.record().unwrap_or(usize::MAX);
        let target = self.store.spec.segment.min(self.store.spec.most).count() as usize;
        let expected = (self.export.left().count() as usize).saturating_mul(each).min(target);
        let mut bytes = format::begin_segment(self.shape, self.id, self.gathered);
        bytes.reserve(expected);
        let mut blocks = 0;
        while blocks == 0 || bytes.len().saturating_add(each) <= target {
            let Some(next) = self.export.next_block() else { break };
            let names = [next.digest, next.parent, next.root];
            format::push_record(&mut bytes, self.shape, names, next.extra, next.tokens, |into| {
                Ok::<_, StoreError>(on.read_bytes(kv.named(&next.block)?, into)?)
            })?;
            if !self.roots.contains(&next.root) {
                self.roots.push(next.root);
            }
            blocks += 1;
        }
        if blocks == 0 {
            return Ok(None);
        }
        format::end_segment(&mut bytes, blocks);
        let ordinal = self.gathered;
        self.gathered += 1;
        Ok(Some(Segment { list: None, ordinal, blocks, bytes: bytes.into() }))
    }

    /// Puts a segment. Between steps: the engine is free while the store works.
    ///
    /// # Errors
    /// [`StoreError::Object`]: it can be put again. [`StoreError::Order`].
    pub async fn put(&mut self, segment: &Segment) -> Result<(), StoreError> {
        if let Some(list) = segment.list {
            return self.put_states(list, segment).await;
        }
        let expected = self.segments.len() as u32;
        if segment.ordinal != expected {
            return Err(StoreError::Order { given: segment.ordinal, expected });
        }
        self.store.put(&self.store.segment_path(self.id, segment.ordinal), segment.bytes.clone()).await?;
        self.segments.push((segment.bytes.len() as u64, crc32c::crc32c(&segment.bytes)));
        self.blocks += u64::from(segment.blocks);
        Ok(())
    }

    /// Puts the manifest: from here on this save is the one that is loaded. The one before is deleted.
    ///
    /// # Errors
    /// [`StoreError::Order`] when a segment was gathered and not put, [`StoreError::Object`]. Until the manifest is there, the save
    /// before counts.
    pub async fn commit(self) -> Result<Saved, StoreError> {
        let segments = self.segments.len() as u32;
        if segments != self.gathered {
            return Err(StoreError::Order { given: self.gathered, expected: segments });
        }
        // What cannot be read is replaced all the same.
        let before = self.store.manifest().await.ok().flatten();
        let states = self.lists.into_iter().map(List::finish).collect::<Result<Vec<_>, _>>()?;
        let lists = states.iter().flat_map(|list| &list.segments);
        let bytes: u64 = self.segments.iter().chain(lists).map(|(length, _)| length).sum();
        let segments = segments + states.iter().map(|list| list.segments.len() as u32).sum::<u32>();
        let count = states.iter().map(|list| list.states).sum();
        let manifest = Manifest {
            id: self.id,
            shape: self.shape,
            blocks: self.blocks,
            roots: self.roots,
            segments: self.segments,
            states,
        };
        let encoded = manifest.encode();
        let bytes = Bytes::new(bytes + encoded.len() as u64);
        self.store.put(&self.store.manifest_path(), encoded.into()).await?;
        if let Some(before) = before.filter(|before| before.id != self.id) {
            // The save is made; what could not be deleted is swept another time.
            let _ = self.store.delete(before.id).await;
        }
        Ok(Saved { blocks: Blocks::new(self.blocks), states: count, segments, bytes })
    }
}

impl<K> std::fmt::Debug for Saver<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "save {}: {} blocks so far", self.id, self.blocks)
    }
}
