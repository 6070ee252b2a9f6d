//! One path that the caller names goes to the second tier, whatever the order of use: what a copy of in-place state is behind.

use super::{
    super::{
        PrefixCacheError, PrefixLease,
        content::BlockContent,
        tree::{Path, Place},
    },
    Copied, TierError, TieredCache,
};
use crate::{
    place::{OutsideCapture, Reached},
    pool::{PoolView, Shareable},
    record::Recorder,
};

/// What became of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Sent {
    /// All of it is in the second tier, or on its way.
    Whole,
    /// Ask again when what is on its way is settled.
    Later,
    /// The second tier has no room for all of it, or the path is gone.
    No,
}

impl<K: Shareable> TieredCache<K> {
    /// Copies what the second tier lacks of the path to `at`, and how many blocks that are.
    pub(in super::super) fn send_path<P, H, C>(
        &mut self,
        on: &Recorder<P>,
        first: &PoolView<'_, K, H>,
        second: &mut PoolView<'_, K, C>,
        at: Place,
    ) -> Result<(Sent, u64), TierError>
    where
        P: OutsideCapture,
        H: OutsideCapture + Reached<P>,
        C: OutsideCapture + Reached<P>,
    {
        self.check_views(first, second)?;
        if at.depth as usize > self.longest {
            return Ok((Sent::No, 0));
        }
        let Some(mut path) = self.spare.pop() else { return Ok((Sent::Later, 0)) };
        if !self.hot.tree.held_path_to(at, &mut path) {
            self.spare.push(path);
            return Ok((Sent::No, 0));
        }
        let held = self.held(&path);
        let missing = held.map_or(0, |held| u64::from(at.depth).saturating_sub(held));
        let copied = match held {
            Ok(_) if missing > 0 => self.copy_path(on, first, second, &path, missing),
            Ok(_) => Ok(Copied::Skip),
            Err(error) => Err(error.into()),
        };
        // The launches keep the memory from here on.
        path.blocks.drain(..).for_each(|block| self.hot.tree.core.release(block));
        let sent = match &copied {
            Ok(Copied::Some { blocks, .. }) if *blocks == missing => (Sent::Whole, missing),
            Ok(Copied::Some { blocks, .. }) => (Sent::No, *blocks),
            Ok(Copied::Wait) => (Sent::Later, 0),
            Ok(Copied::Skip) if missing == 0 => (Sent::Whole, 0),
            Ok(Copied::Skip) | Err(_) => (Sent::No, 0),
        };
        self.send(path, copied).map(|_| sent)
    }

    /// How many blocks of a path the second tier has.
    fn held(&self, path: &Path) -> Result<u64, PrefixCacheError> {
        let Some(root) = path.root.and_then(|digest| self.cold.root_named(digest)) else {
            return Err(PrefixCacheError::Root);
        };
        let content = BlockContent { root, tokens: &path.tokens, extras: &path.extras };
        Ok(self.cold.lookup(&content)?.blocks().count())
    }

    /// The path that was sent, in the second tier: `None` if not all of it is there.
    pub(in super::super) fn arrived(&self, path: &Path) -> Result<Option<PrefixLease<K>>, PrefixCacheError> {
        let Some(root) = path.root.and_then(|digest| self.cold.root_named(digest)) else { return Ok(None) };
        let lease = self.cold.lookup(&BlockContent { root, tokens: &path.tokens, extras: &path.extras })?;
        Ok((lease.blocks().count() == path.extras.len() as u64).then_some(lease))
    }
}
