//! What happened to cached blocks, for routers that send a request to where its prefix is.

use std::collections::VecDeque;

use super::{content::Digest, tree::filled};

/// A change of what is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CacheEvent {
    /// A block is cached.
    Stored {
        /// Which.
        block: Digest,
        /// The block, or root, before it.
        parent: Digest,
    },
    /// A block made room for others.
    Evicted {
        /// Which.
        block: Digest,
    },
    /// A block went with its root, or with the cache.
    Removed {
        /// Which.
        block: Digest,
    },
}

/// The queue, and the digest of what is in each slot, and of each root in the place of its run. Sized once.
pub(super) struct Events {
    queue: VecDeque<CacheEvent>,
    most: usize,
    lost: u64,
    digests: Box<[Digest]>,
}

impl Events {
    /// `None` when there is not enough memory.
    pub(super) fn new(places: usize, most: usize) -> Option<Self> {
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(most).ok()?;
        Some(Events { queue, most, lost: 0, digests: filled(places, Digest::from_bytes([0; 32]))? })
    }

    pub(super) fn root(&mut self, run: u32, digest: Digest) {
        self.digests[run as usize] = digest;
    }

    pub(super) fn stored(&mut self, slot: u32, parent: u32, extra: u128, tokens: &[u32]) {
        let parent = self.digests[parent as usize];
        let block = parent.child(extra, tokens);
        self.digests[slot as usize] = block;
        self.push(CacheEvent::Stored { block, parent });
    }

    pub(super) fn removed(&mut self, slot: u32, evicted: bool) {
        let block = self.digests[slot as usize];
        self.push(if evicted { CacheEvent::Evicted { block } } else { CacheEvent::Removed { block } });
    }

    fn push(&mut self, event: CacheEvent) {
        if self.queue.len() == self.most {
            // Whoever listens learns how many it missed, and asks for all that is there.
            self.queue.pop_front();
            self.lost += 1;
        }
        self.queue.push_back(event);
    }

    pub(super) fn take(&mut self) -> Option<CacheEvent> {
        self.queue.pop_front()
    }

    pub(super) fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}
