//! Loading states, when the blocks that they are behind are loaded.

use std::{marker::PhantomData, sync::Arc};

use bytes::Bytes as Buffer;
use memtier::{
    AcquireBlocksError, Blocks, Bytes, Digest, Fence, OutsideCapture, PoolKind, PoolView, Recorder, Shareable,
    Snapshots, Ticket, Tokens,
};

use super::{Loader, Path};
use crate::{
    error::{StoreError, Tear},
    format::{
        Damage,
        states::{self, ListName, StateList, StateRecord, StateShape},
    },
};

/// A list of states being loaded. Made by [`Loader::states`].
pub struct StateLoader<'l, K: Shareable, W: PoolKind> {
    loader: &'l mut Loader<K>,
    list: StateList,
    /// The next segment.
    ordinal: u32,
    bytes: Buffer,
    records: Vec<StateRecord>,
    /// The next of them.
    next: usize,
    is_over: bool,
    kind: PhantomData<fn() -> W>,
}

/// States that were written in a step, and are kept by its fence.
#[must_use = "states that are not kept are lost when this drops"]
pub struct StateBatch<W: PoolKind> {
    states: Vec<Written<W>>,
    /// Where the load goes on.
    next: usize,
    left_out: u64,
    damage: Option<Damage>,
}

struct Written<W: PoolKind> {
    ticket: Ticket<W>,
    tokens: Tokens,
    path: Path,
}

impl<K: Shareable> Loader<K> {
    /// The states of this name that the save has, when all blocks are loaded. `None`: it has none, or no manifest.
    ///
    /// # Errors
    /// [`StoreError::List`] for a name that no list can have.
    pub fn states<W: PoolKind>(&mut self, name: &str) -> Result<Option<StateLoader<'_, K, W>>, StoreError> {
        let wanted = ListName::new(name).ok_or_else(|| StoreError::List { name: name.to_owned() })?;
        let lists = self.manifest.iter().flat_map(|manifest| &manifest.states);
        let list = lists.clone().find(|list| list.name == wanted).cloned();
        Ok(list.map(|list| StateLoader {
            loader: self,
            list,
            ordinal: 0,
            bytes: Buffer::new(),
            records: Vec::new(),
            next: 0,
            is_over: false,
            kind: PhantomData,
        }))
    }

    /// The path from the root to a block that was verified.
    fn path_to(&self, digest: Digest) -> Option<Path> {
        let (mut before, mut at) = (Vec::new(), digest);
        let root = self.known.get(&digest)?.root;
        while at != root {
            let known = self.known.get(&at)?;
            before.push(known);
            at = known.parent;
        }
        let mut path = Path { root: self.cache.root_named(root)?, tokens: Vec::new(), extras: Vec::new() };
        for known in before.iter().rev() {
            path.tokens.extend(&known.tokens);
            path.extras.push(known.extra);
        }
        Some(path)
    }
}

impl<K: Shareable, W: PoolKind> StateLoader<'_, K, W> {
    /// Gets the next states from the store, as [`Loader::fetch`] gets blocks.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], or the store's own: it can be asked again.
    pub async fn fetch(&mut self) -> Result<bool, StoreError> {
        while self.next == self.records.len() {
            let Some(promised) = self.list.segments.get(self.ordinal as usize).copied().filter(|_| !self.is_over)
            else {
                return Ok(false);
            };
            let id = self.loader.id;
            let object = self.loader.store.states_path(id, self.list.name, self.ordinal);
            let bytes = self.loader.store.get(&object).await?;
            let decoded = match &bytes {
                Some(bytes) => states::decode_segment(bytes, self.list.shape, id, self.ordinal),
                None => Err(Damage::Missing),
            };
            (self.records, self.next) = (Vec::new(), 0);
            self.ordinal += 1;
            let is_promised = |bytes: &Buffer| promised == (bytes.len() as u64, crc32c::crc32c(bytes));
            let damage = match decoded {
                // Good by itself, and not what was saved.
                Ok(states::Decoded { damage: None, .. }) if !bytes.as_ref().is_some_and(is_promised) => {
                    Some(Damage::Checksum)
                }
                Ok(states::Decoded { records, damage }) => {
                    (self.records, self.bytes) = (records, bytes.unwrap_or_default());
                    damage
                }
                Err(damage) => Some(damage),
            };
            if let Some(damage) = damage {
                self.tear(object, damage);
            }
        }
        Ok(true)
    }

    fn tear(&mut self, object: object_store::path::Path, damage: Damage) {
        self.is_over = true;
        self.loader.loaded.tear.get_or_insert(Tear { object, damage });
    }

    /// Writes the next states into free blocks of their pool, in a step, where their prefixes are cached and `snapshots` has room. A load
    /// makes no room.
    ///
    /// # Errors
    /// [`StoreError::OtherLayout`], [`StoreError::View`], [`StoreError::Launch`], [`StoreError::Cache`]; the blocks are free again, and can be
    /// written once more.
    pub fn write<P: OutsideCapture>(
        &mut self,
        on: &Recorder<P>,
        view: &mut PoolView<'_, W, P>,
        snapshots: &Snapshots<W>,
    ) -> Result<StateBatch<W>, StoreError> {
        let shape = StateShape { tokens: view.per_block().count(), bytes: view.block_bytes().count() };
        if shape != self.list.shape {
            return Err(StoreError::OtherLayout {
                object: self.loader.store.states_path(self.loader.id, self.list.name, self.ordinal.saturating_sub(1)),
                tokens: Tokens::new(self.list.shape.tokens),
                bytes: Bytes::new(self.list.shape.bytes),
                own_tokens: view.per_block(),
                own_bytes: view.block_bytes(),
            });
        }
        let mut batch = StateBatch { states: Vec::new(), next: self.records.len(), left_out: 0, damage: None };
        for (index, record) in self.records.iter().enumerate().skip(self.next) {
            let prefix = self.loader.path_to(record.digest);
            let Some(path) = prefix.filter(|_| snapshots.len() + batch.states.len() < snapshots.most()) else {
                batch.left_out += 1;
                continue;
            };
            // Before anything is allocated for it.
            let end = u64::from(record.first) + u64::from(record.blocks);
            if record.tokens > path.tokens.len() as u64 || end > record.tokens.div_ceil(shape.tokens.max(1)) {
                (batch.next, batch.damage) = (index, Some(Damage::State));
                break;
            }
            let lease = self.loader.cache.lookup(&path.content())?;
            let is_there = lease.blocks().count() as usize == path.extras.len();
            if !is_there || snapshots.has_behind(&lease) {
                batch.left_out += u64::from(!is_there);
                continue;
            }
            match self.write_one(on, view, record)? {
                Some((ticket, tokens)) => batch.states.push(Written { ticket, tokens, path }),
                None => batch.left_out += 1,
            }
        }
        Ok(batch)
    }

    /// `None`: there are too few free blocks.
    fn write_one<P: OutsideCapture>(
        &self,
        on: &Recorder<P>,
        view: &mut PoolView<'_, W, P>,
        record: &StateRecord,
    ) -> Result<Option<(Ticket<W>, Tokens)>, StoreError> {
        let end = u64::from(record.first) + u64::from(record.blocks);
        let mut ticket = view.handle().open(Tokens::new(end.saturating_mul(self.list.shape.tokens)));
        ticket.skip(Blocks::new(u64::from(record.first)));
        if view.handle().free() < Blocks::new(u64::from(record.blocks)) {
            return Ok(None);
        }
        match ticket.push(Blocks::new(u64::from(record.blocks))) {
            Ok(()) => {}
            Err(AcquireBlocksError::Full { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let size = self.list.shape.bytes as usize;
        for (index, bytes) in self.bytes[record.bytes.clone()].chunks_exact(size.max(1)).enumerate() {
            on.write_bytes(&mut view.block_mut(&mut ticket, record.first as usize + index)?, bytes)?;
        }
        let tokens = Tokens::new(record.tokens.saturating_sub(ticket.tokens().count()));
        Ok(Some((ticket, tokens)))
    }

    /// Waits for the fence of the step that wrote the batch, and keeps its states, as those unused for longest.
    ///
    /// # Errors
    /// [`StoreError::Device`], [`StoreError::Advance`], [`StoreError::Cache`]; what was not kept is free again.
    pub fn keep(
        &mut self,
        batch: StateBatch<W>,
        fence: &Fence,
        snapshots: &mut Snapshots<W>,
    ) -> Result<(), StoreError> {
        let settled = fence.wait()?;
        for Written { mut ticket, tokens, path } in batch.states {
            ticket.advance(tokens, fence)?;
            let lease = self.loader.cache.lookup(&path.content())?;
            // What it is behind may have made room meanwhile.
            let is_there = lease.blocks().count() as usize == path.extras.len();
            let is_kept = is_there && snapshots.keep_as_oldest(&lease, Arc::new(ticket), &settled);
            self.loader.loaded.states += u64::from(is_kept);
            self.loader.loaded.states_left_out += u64::from(!is_kept);
        }
        self.loader.loaded.states_left_out += batch.left_out;
        self.next = batch.next;
        if let Some(damage) = batch.damage {
            self.next = self.records.len();
            let object = self.loader.store.states_path(self.loader.id, self.list.name, self.ordinal - 1);
            self.tear(object, damage);
        }
        Ok(())
    }
}

impl<K: Shareable, W: PoolKind> std::fmt::Debug for StateLoader<'_, K, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "load of {} states named {}", self.list.states, self.list.name)
    }
}

impl<W: PoolKind> StateBatch<W> {
    /// States in it.
    pub fn states(&self) -> usize {
        self.states.len()
    }
}

impl<W: PoolKind> std::fmt::Debug for StateBatch<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "batch of {} states", self.states.len())
    }
}
