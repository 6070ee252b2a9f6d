//! What is cached, for whoever keeps it elsewhere: names, and blocks one at a time.

use std::{marker::PhantomData, sync::Arc};

use super::{
    BlockRef, Digest, PrefixCache, PrefixCacheError, Root, Shareable,
    tree::{Name, RootName, Tree},
};
use crate::{
    element::Element,
    units::{Blocks, Bytes, Tokens},
};

impl<K: Shareable> PrefixCache<K> {
    /// The name of a root that is the same everywhere.
    ///
    /// # Errors
    /// [`PrefixCacheError::Root`].
    pub fn root_digest(&self, root: Root) -> Result<Digest, PrefixCacheError> {
        let is_ours = root.tree == self.tree.core.id;
        let state = self.tree.lock();
        let known = state.roots.iter().find(|(_, number, _)| is_ours && *number == root.number);
        known.map(|(digest, ..)| *digest).ok_or(PrefixCacheError::Root)
    }

    /// The root of this name, if [`root`](PrefixCache::root) made one.
    pub fn root_named(&self, digest: Digest) -> Option<Root> {
        let state = self.tree.lock();
        let known = state.roots.iter().find(|(known, ..)| *known == digest);
        known.map(|(_, number, run)| Root { tree: self.tree.core.id, number: *number, run: *run })
    }

    /// Tokens in one block.
    pub fn per_block(&self) -> Tokens {
        self.tree.core.per_block
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> Bytes {
        Bytes::new((self.tree.core.block_units * size_of::<<K::Element as Element>::Repr>()) as u64)
    }

    /// How many blocks it can have.
    pub fn most(&self) -> Blocks {
        self.spec.most
    }

    /// All that is cached now, to be gone through at leisure: each block is kept only while its turn lasts, so that a pool can take
    /// back the others meanwhile; what went is left out, and what is behind it.
    ///
    /// Allocates a list of names: about 64 bytes and the tokens for each block.
    pub fn export(&self) -> Export<K> {
        let (names, roots, tokens) = self.tree.names();
        let digests = Vec::with_capacity(names.len());
        Export { tree: self.tree.clone(), names, roots, tokens, digests, next: 0, kind: PhantomData }
    }
}

/// The blocks of a cache, those before others first. Made by [`PrefixCache::export`].
pub struct Export<K> {
    tree: Arc<Tree>,
    names: Vec<Name>,
    roots: Vec<RootName>,
    tokens: Vec<u32>,
    /// Of the names so far. `None`: it went, or something before it did.
    digests: Vec<Option<Digest>>,
    next: usize,
    kind: PhantomData<fn() -> K>,
}

/// A cached block, its name and its place.
#[derive(Debug)]
pub struct CachedBlock<'e, K: Shareable> {
    /// The root it is behind.
    pub root: Digest,
    /// The block, or root, before it.
    pub parent: Digest,
    /// `parent.child(extra, tokens)`.
    pub digest: Digest,
    /// What is in it besides tokens; zero for nothing.
    pub extra: u128,
    /// Its tokens.
    pub tokens: &'e [u32],
    /// Keeps its memory: [`PoolView::named`](crate::PoolView::named) reads it.
    pub block: BlockRef<K>,
}

impl<K: Shareable> Export<K> {
    /// The next block. `None`: there are no more.
    pub fn next_block(&mut self) -> Option<CachedBlock<'_, K>> {
        while let Some(name) = self.names.get(self.next).copied() {
            let (index, root) = (self.next, self.roots[name.root as usize]);
            self.next += 1;
            let parent = match self.names.get(name.parent as usize) {
                Some(_) => self.digests[name.parent as usize],
                None => Some(root.digest),
            };
            let found = parent.and_then(|parent| Some((parent, self.tree.still(&name, &root)?)));
            let tokens = &self.tokens[index * self.tree.per_block..][..self.tree.per_block];
            let digest = found.map(|(parent, _)| parent.child(name.extra, tokens));
            self.digests.push(digest);
            if let (Some((parent, block)), Some(digest)) = (found, digest) {
                let block = BlockRef::new(&self.tree.core, block);
                return Some(CachedBlock { root: root.digest, parent, digest, extra: name.extra, tokens, block });
            }
        }
        None
    }

    /// Blocks that were not looked at yet.
    pub fn left(&self) -> Blocks {
        Blocks::new((self.names.len() - self.next) as u64)
    }

    /// Tokens in one block.
    pub fn per_block(&self) -> Tokens {
        self.tree.core.per_block
    }
}

impl<K> std::fmt::Debug for Export<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "export of {} blocks, {} done", self.names.len(), self.next)
    }
}
