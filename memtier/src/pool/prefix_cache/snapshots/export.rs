//! Copies for whoever keeps them elsewhere: by the name of the prefix that each is at the end of.

use std::sync::Arc;

use super::{
    super::{Digest, tree::Path},
    Snapshots,
};
use crate::{
    pool::{Ticket, kind::PoolKind},
    units::Blocks,
};

/// A copy, and the prefix that it is at the end of.
pub struct KeptState<W: PoolKind> {
    /// The root that the prefix is behind.
    pub root: Digest,
    /// The last block of the prefix.
    pub digest: Digest,
    /// Blocks of the prefix.
    pub blocks: Blocks,
    /// Keeps its memory: [`PoolView::block`](crate::PoolView::block) reads it.
    pub state: Arc<Ticket<W>>,
}

impl<W: PoolKind> Snapshots<W> {
    /// All copies whose prefix is still cached, the one used last first.
    ///
    /// Allocates; it hashes the tokens of each prefix.
    pub fn export(&self) -> Vec<KeptState<W>> {
        let mut kept: Vec<_> = self.kept.iter().collect();
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.used));
        let (mut path, per_block) = (Path::default(), self.tree.per_block);
        let named = kept.into_iter().filter_map(|kept| {
            let is_there = self.tree.path_to(kept.at, &mut path);
            let root = path.root.filter(|_| is_there)?;
            let parts = path.tokens.chunks_exact(per_block).zip(&path.extras);
            let digest = parts.fold(root, |parent, (tokens, extra)| parent.child(*extra, tokens));
            let blocks = Blocks::new(u64::from(kept.at.depth));
            Some(KeptState { root, digest, blocks, state: kept.state.clone() })
        });
        named.collect()
    }
}

impl<W: PoolKind> std::fmt::Debug for KeptState<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} behind {} ({})", self.state, self.digest, self.blocks)
    }
}
