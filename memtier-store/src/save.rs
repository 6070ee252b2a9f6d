//! Saving: blocks into segments in steps, segments into the store between them, the manifest last.

use bytes::Bytes as Buffer;
use memtier::{Blocks, Bytes, Digest, Export, OutsideCapture, PoolView, PrefixCache, Recorder, Shareable};

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
}

/// Blocks with their names, complete in itself. Cheap to clone, to put it again when a store fails.
#[derive(Clone, Debug)]
pub struct Segment {
    ordinal: u32,
    blocks: u32,
    bytes: Buffer,
}

impl Segment {
    /// Blocks in it.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(u64::from(self.blocks))
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
        let (roots, segments) = (Vec::new(), Vec::new());
        Ok(Saver { store, export: cache.export(), shape, id, gathered: 0, roots, segments, blocks: 0 })
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
        Ok(Some(Segment { ordinal, blocks, bytes: bytes.into() }))
    }

    /// Puts a segment. Between steps: the engine is free while the store works.
    ///
    /// # Errors
    /// [`StoreError::Object`]: it can be put again. [`StoreError::Order`].
    pub async fn put(&mut self, segment: &Segment) -> Result<(), StoreError> {
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
        let bytes: u64 = self.segments.iter().map(|(length, _)| length).sum();
        let manifest = Manifest {
            id: self.id,
            shape: self.shape,
            blocks: self.blocks,
            roots: self.roots,
            segments: self.segments,
        };
        let encoded = manifest.encode();
        let bytes = Bytes::new(bytes + encoded.len() as u64);
        self.store.put(&self.store.manifest_path(), encoded.into()).await?;
        if let Some(before) = before.filter(|before| before.id != self.id) {
            // The save is made; what could not be deleted is swept another time.
            let _ = self.store.delete(before.id).await;
        }
        Ok(Saved { blocks: Blocks::new(self.blocks), segments, bytes })
    }
}

impl<K> std::fmt::Debug for Saver<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "save {}: {} blocks so far", self.id, self.blocks)
    }
}
