//! Where saves are.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes as Buffer;
use futures_util::{StreamExt, TryStreamExt};
use memtier::{Bytes, PrefixCache, Shareable};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

use crate::{
    error::StoreError,
    format::{Damage, Manifest, SaveId, Shape, states::ListName},
    load::Loader,
    save::Saver,
};

/// How large objects are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreSpec {
    /// A segment is put when it has this many bytes.
    pub segment: Bytes,
    /// No object larger than this is read, whatever it says, and no larger one is written.
    pub most: Bytes,
}

impl Default for StoreSpec {
    /// Segments of 64 MiB; at most 1 GiB.
    fn default() -> Self {
        StoreSpec { segment: Bytes::mib(64), most: Bytes::mib(1024) }
    }
}

/// Prefix caches under one prefix of a store: a folder, or a bucket that a fleet shares. Clones are the same place.
///
/// Every object is put as a whole, and the manifest last, so a reader sees the save before or the save after, never half of one.
#[derive(Clone, Debug)]
pub struct PrefixStore {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    pub(crate) spec: StoreSpec,
}

impl PrefixStore {
    /// Saves under `prefix`. Use another one for each model and layout.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: Path, spec: StoreSpec) -> Self {
        PrefixStore { objects, prefix, spec }
    }

    /// Begins a save of everything that is in the cache now.
    ///
    /// # Errors
    /// [`StoreError::Block`].
    pub fn save<K: Shareable>(&self, cache: &PrefixCache<K>) -> Result<Saver<K>, StoreError> {
        let id = SaveId::now();
        Saver::new(self.clone(), cache, id)
    }

    /// Begins a load of the last save: what its manifest names, or, where a first save did not come to its manifest, what there is of it.
    /// Make the roots that are wanted first. `None`: there is nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::OtherLayout`], [`StoreError::OtherModel`], [`StoreError::TooLarge`], or the store's own.
    pub async fn load<K: Shareable>(&self, cache: &PrefixCache<K>) -> Result<Option<Loader<K>>, StoreError> {
        let manifest = self.manifest().await?;
        let id = match &manifest {
            Some(manifest) => Some(manifest.id),
            None => self.saves().await?.into_iter().max(),
        };
        id.map(|id| Loader::new(self.clone(), cache, id, manifest)).transpose()
    }

    /// Deletes every save that the manifest does not name: what is left of saves that were interrupted. Not while another machine saves.
    ///
    /// Returns how many saves.
    ///
    /// # Errors
    /// As [`load`](PrefixStore::load).
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let Some(manifest) = self.manifest().await? else { return Ok(0) };
        let mut swept = 0;
        for id in self.saves().await? {
            if id != manifest.id {
                self.delete(id).await?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    pub(crate) async fn manifest(&self) -> Result<Option<Manifest>, StoreError> {
        let object = self.manifest_path();
        let Some(bytes) = self.get(&object).await? else { return Ok(None) };
        Manifest::decode(&bytes).map(Some).map_err(|damage| StoreError::Damaged { object, damage })
    }

    /// Saves of which something is there.
    async fn saves(&self) -> Result<Vec<SaveId>, StoreError> {
        let listed = self.objects.list_with_delimiter(Some(&self.prefix.clone().join("saves"))).await?;
        Ok(listed.common_prefixes.iter().filter_map(|path| SaveId::parse(path.filename()?)).collect())
    }

    pub(crate) async fn delete(&self, id: SaveId) -> Result<(), StoreError> {
        let all = self.objects.list(Some(&self.prefix.clone().join("saves").join(id.to_string())));
        let all: Vec<_> = all.map(|meta| meta.map(|meta| meta.location)).try_collect().await?;
        for path in all {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// A whole object, if it is there and not too large.
    pub(crate) async fn get(&self, object: &Path) -> Result<Option<Buffer>, StoreError> {
        let found = match self.objects.get(object).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (bytes, most) = (Bytes::new(found.meta.size), self.spec.most);
        if bytes > most {
            return Err(StoreError::TooLarge { object: object.clone(), bytes, most });
        }
        Ok(Some(found.bytes().await?))
    }

    pub(crate) async fn put(&self, object: &Path, bytes: Buffer) -> Result<(), StoreError> {
        self.objects.put(object, bytes.into()).await?;
        Ok(())
    }

    pub(crate) fn manifest_path(&self) -> Path {
        self.prefix.clone().join("manifest")
    }

    pub(crate) fn segment_path(&self, id: SaveId, ordinal: u32) -> Path {
        self.prefix.clone().join("saves").join(id.to_string()).join(format!("{ordinal:08}"))
    }

    pub(crate) fn states_path(&self, id: SaveId, list: ListName, ordinal: u32) -> Path {
        let states = self.prefix.clone().join("saves").join(id.to_string()).join("states");
        states.join(list.to_string()).join(format!("{ordinal:08}"))
    }

    pub(crate) fn shape_of<K: Shareable>(cache: &PrefixCache<K>) -> Shape {
        Shape { tokens: cache.per_block().count() as u32, bytes: cache.block_bytes().count() }
    }

    pub(crate) fn refuse_other_layout<K: Shareable>(
        cache: &PrefixCache<K>,
        object: Path,
        damage: Damage,
    ) -> Result<(), StoreError> {
        match damage {
            Damage::Shape(tokens, bytes) => Err(StoreError::OtherLayout {
                object,
                tokens: memtier::Tokens::new(u64::from(tokens)),
                bytes: Bytes::new(bytes),
                own_tokens: cache.per_block(),
                own_bytes: cache.block_bytes(),
            }),
            _ => Ok(()),
        }
    }
}

impl SaveId {
    /// Of a save that begins now: the time, and something that another machine's has not.
    fn now() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let random = RandomState::new().build_hasher().finish();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&time.to_be_bytes());
        id[8..].copy_from_slice(&random.to_be_bytes());
        SaveId(id)
    }
}
