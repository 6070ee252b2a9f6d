//! Loading: a segment at a time, verified, into requests' own blocks in steps, and published with proof.

mod states;

use std::collections::{HashMap, HashSet};

use bytes::Bytes as Buffer;
use memtier::{
    AcquireBlocksError, BlockContent, Blocks, Digest, Fence, OutsideCapture, PoolView, PrefixCache, Recorder, Root,
    Shareable, Ticket, Tokens,
};

pub use states::{StateBatch, StateLoader};

use crate::{
    error::{StoreError, Tear},
    format::{self, Damage, Manifest, Record, SaveId, Shape},
    store::PrefixStore,
};

/// A load under way. Made by [`PrefixStore::load`].
pub struct Loader<K: Shareable> {
    store: PrefixStore,
    cache: PrefixCache<K>,
    shape: Shape,
    id: SaveId,
    manifest: Option<Manifest>,
    /// The next segment.
    ordinal: u32,
    bytes: Buffer,
    records: Vec<Record>,
    /// The next of them.
    next: usize,
    /// Everything that was verified, by its name, to find the way back to the root.
    known: HashMap<Digest, Known>,
    loaded: Loaded,
    is_over: bool,
}

struct Known {
    parent: Digest,
    root: Digest,
    extra: u128,
    tokens: Vec<u32>,
}

/// What came of a load.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Loaded {
    /// Blocks that were written and published.
    pub blocks: u64,
    /// Blocks that were cached already.
    pub there: u64,
    /// Blocks of models and adapters that the cache has no root of.
    pub foreign: u64,
    /// Blocks, of those that were read, that the pool or the cache has no room for. A load evicts nothing.
    pub left_out: u64,
    /// States that were written and kept.
    pub states: u64,
    /// States, of those that were read, that there is no room for, or whose prefix was not loaded.
    pub states_left_out: u64,
    /// Where the save ends before its end. Everything before is loaded.
    pub tear: Option<Tear>,
}

/// Blocks that were written in a step, and are published by its fence.
#[must_use = "blocks that are not published are lost when this drops"]
pub struct Batch<K: Shareable> {
    chains: Vec<Chain<K>>,
    /// Where the load goes on.
    next: usize,
    there: u64,
    left_out: u64,
}

struct Chain<K: Shareable> {
    ticket: Ticket<K>,
    path: Path,
    new: usize,
}

/// From the root on.
struct Path {
    root: Root,
    tokens: Vec<u32>,
    extras: Vec<u128>,
}

impl Path {
    fn content(&self) -> BlockContent<'_> {
        BlockContent { root: self.root, tokens: &self.tokens, extras: &self.extras }
    }
}

impl<K: Shareable> Batch<K> {
    /// Blocks in it.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.chains.iter().map(|chain| chain.new as u64).sum())
    }
}

impl<K: Shareable> Loader<K> {
    pub(crate) fn new(
        store: PrefixStore,
        cache: &PrefixCache<K>,
        id: SaveId,
        manifest: Option<Manifest>,
    ) -> Result<Self, StoreError> {
        let shape = PrefixStore::shape_of(cache);
        if let Some(manifest) = &manifest {
            let object = store.manifest_path();
            let found = manifest.shape;
            if found != shape {
                PrefixStore::refuse_other_layout(cache, object.clone(), Damage::Shape(found.tokens, found.bytes))?;
            }
            let is_wanted = |root: &Digest| cache.root_named(*root).is_some();
            if let Some(stored) = manifest.roots.first().filter(|_| !manifest.roots.iter().any(is_wanted)) {
                return Err(StoreError::OtherModel { object, stored: *stored, blocks: Blocks::new(manifest.blocks) });
            }
        }
        Ok(Loader {
            store,
            cache: cache.clone(),
            shape,
            id,
            manifest,
            ordinal: 0,
            bytes: Buffer::new(),
            records: Vec::new(),
            next: 0,
            known: HashMap::new(),
            loaded: Loaded::default(),
            is_over: false,
        })
    }

    /// Gets the next blocks from the store, when those it has are written. Between steps: the engine is free meanwhile.
    ///
    /// `false`: there are no more, and [`finish`](Loader::finish) tells what came of it.
    ///
    /// # Errors
    /// [`StoreError::OtherLayout`], [`StoreError::TooLarge`], or the store's own: it can be asked again.
    pub async fn fetch(&mut self) -> Result<bool, StoreError> {
        while self.next == self.records.len() {
            if self.is_over || self.manifest.as_ref().is_some_and(|all| self.ordinal as usize >= all.segments.len()) {
                return Ok(false);
            }
            let object = self.store.segment_path(self.id, self.ordinal);
            let bytes = self.store.get(&object).await?;
            let decoded = match &bytes {
                Some(bytes) => self.decode(bytes),
                // Without a manifest nobody says that there should be one more.
                None if self.manifest.is_none() => {
                    self.is_over = true;
                    continue;
                }
                None => Err(Damage::Missing),
            };
            (self.records, self.next) = (Vec::new(), 0);
            self.ordinal += 1;
            let damage = match decoded {
                Ok((records, damage)) => {
                    (self.records, self.bytes) = (records, bytes.unwrap_or_default());
                    damage
                }
                Err(damage) => {
                    PrefixStore::refuse_other_layout(&self.cache, object.clone(), damage)?;
                    Some(damage)
                }
            };
            if let Some(damage) = damage {
                self.is_over = true;
                self.loaded.tear = Some(Tear { object, damage });
            }
        }
        Ok(true)
    }

    /// Blocks that were fetched and not written yet: who can give the pool more room does it before [`write`](Loader::write).
    pub fn pending(&self) -> Blocks {
        Blocks::new((self.records.len() - self.next) as u64)
    }

    /// The records of a segment that can be used, and why there are no more.
    fn decode(&mut self, bytes: &[u8]) -> Result<(Vec<Record>, Option<Damage>), Damage> {
        let decoded = format::decode_segment(bytes, self.shape, self.id, self.ordinal)?;
        let mut damage = decoded.damage;
        let promised = self.manifest.as_ref().and_then(|manifest| manifest.segments.get(self.ordinal as usize));
        if let Some((length, sum)) = promised
            && damage.is_none()
            && (*length != bytes.len() as u64 || *sum != crc32c::crc32c(bytes))
        {
            // Good by itself, and not what was saved.
            return Err(Damage::Checksum);
        }
        let mut records = Vec::with_capacity(decoded.records.len());
        for record in decoded.records {
            if self.cache.root_named(record.root).is_none() {
                self.loaded.foreign += 1;
                continue;
            }
            let parent = self.known.get(&record.parent);
            if record.parent != record.root && parent.is_none_or(|parent| parent.root != record.root) {
                damage = Some(Damage::Parent);
                break;
            }
            let Record { digest, parent, root, extra, ref tokens, .. } = record;
            self.known.entry(digest).or_insert_with(|| Known { parent, root, extra, tokens: tokens.clone() });
            records.push(record);
        }
        Ok((records, damage))
    }

    /// Writes the next blocks into blocks of the pool that are free, in a step: as many as there are, up to the first that comes after one
    /// of them. A load evicts nothing.
    ///
    /// # Errors
    /// [`StoreError::View`], [`StoreError::Launch`], [`StoreError::Cache`]; the blocks are free again, and can be written once more.
    pub fn write<P: OutsideCapture>(
        &mut self,
        on: &Recorder<P>,
        kv: &mut PoolView<'_, K, P>,
    ) -> Result<Batch<K>, StoreError> {
        let mut batch = Batch { chains: Vec::new(), next: self.next, there: 0, left_out: 0 };
        let mut room = kv.handle().free().min(self.cache.most().beyond(self.cache.stats().cached)).count() as usize;
        let mut unpublished = HashSet::new();
        while let Some(first) = self.records.get(batch.next) {
            if unpublished.contains(&first.parent) {
                break;
            }
            let rest = &self.records[batch.next..];
            let follows = rest.windows(2).take_while(|pair| pair[1].parent == pair[0].digest).count();
            let chain = &rest[..=follows];
            batch.next += chain.len();
            let Some((path, before)) = self.path(chain) else { continue };
            let lease = self.cache.lookup(&path.content())?;
            let held = lease.blocks().count() as usize;
            if held < before {
                // What it follows had no room.
                batch.left_out += chain.len() as u64;
                continue;
            }
            batch.there += (held - before) as u64;
            let missing = before + chain.len() - held;
            let new = missing.min(room);
            batch.left_out += (missing - new) as u64;
            if new == 0 {
                continue;
            }
            let mut ticket = lease.open(Tokens::new((held + new) as u64 * u64::from(self.shape.tokens)));
            match ticket.push(Blocks::new(new as u64)) {
                Ok(()) => {}
                Err(AcquireBlocksError::Full { .. }) => {
                    (batch.left_out, room) = (batch.left_out + new as u64, 0);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            room -= new;
            for (index, record) in chain.iter().enumerate().skip(held - before).take(new) {
                on.write_bytes(&mut kv.block_mut(&mut ticket, before + index)?, &self.bytes[record.bytes.clone()])?;
                unpublished.insert(record.digest);
            }
            batch.chains.push(Chain { ticket, path, new });
        }
        Ok(batch)
    }

    /// The whole path of a chain of records, and how many blocks of it are before them.
    fn path(&self, chain: &[Record]) -> Option<(Path, usize)> {
        let first = chain.first()?;
        let root = self.cache.root_named(first.root)?;
        let mut before = Vec::new();
        let mut at = first.parent;
        while at != first.root {
            let known = self.known.get(&at)?;
            before.push(known);
            at = known.parent;
        }
        let blocks = before.iter().rev().map(|known| (known.extra, &known.tokens));
        let blocks = blocks.chain(chain.iter().map(|record| (record.extra, &record.tokens)));
        let mut path = Path { root, tokens: Vec::new(), extras: Vec::new() };
        for (extra, tokens) in blocks {
            path.tokens.extend(tokens);
            path.extras.push(extra);
        }
        Some((path, before.len()))
    }

    /// Waits for the fence of the step that wrote the batch, and publishes it.
    ///
    /// # Errors
    /// [`StoreError::Device`], [`StoreError::Advance`], [`StoreError::Cache`]; what was not published is free again.
    pub fn publish(&mut self, batch: Batch<K>, fence: &Fence) -> Result<(), StoreError> {
        let settled = fence.wait()?;
        let per_block = u64::from(self.shape.tokens);
        for Chain { mut ticket, path, new } in batch.chains {
            let before = ticket.tokens().count() / per_block;
            ticket.advance(Tokens::new(new as u64 * per_block), fence)?;
            let tokens = self.cache.publish(&mut ticket, &settled, &path.content())?;
            let published = (tokens.count() / per_block).saturating_sub(before);
            self.loaded.blocks += published;
            self.loaded.left_out += (new as u64).saturating_sub(published);
        }
        self.loaded.there += batch.there;
        self.loaded.left_out += batch.left_out;
        self.next = batch.next;
        Ok(())
    }

    /// What came of it.
    pub fn finish(self) -> Loaded {
        self.loaded
    }
}

impl<K: Shareable> std::fmt::Debug for Loader<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "load {}: {} blocks so far", self.id, self.loaded.blocks)
    }
}

impl<K: Shareable> std::fmt::Debug for Batch<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "batch of {}", self.blocks())
    }
}
