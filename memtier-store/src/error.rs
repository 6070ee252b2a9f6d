//! What goes wrong.

use memtier::{
    AcquireBlocksError, AdvanceError, BlockError, Blocks, Bytes, Digest, LaunchError, PrefixCacheError, QueueError,
    Tokens,
};
use object_store::path::Path;

use crate::format::Damage;

/// Nothing was saved or loaded, or less than there is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store failed.
    #[error(transparent)]
    Object(#[from] object_store::Error),
    /// An object cannot be used.
    #[error("{object}: {damage}; delete it to start from what else is there, or save again")]
    Damaged {
        /// Which.
        object: Path,
        /// Why.
        damage: Damage,
    },
    /// It was saved from blocks of another shape.
    #[error(
        "{object}: its blocks have {tokens} and {bytes}, and this cache's {own_tokens} and {own_bytes}: use another prefix for each layout"
    )]
    OtherLayout {
        /// Which.
        object: Path,
        /// Its.
        tokens: Tokens,
        /// Its.
        bytes: Bytes,
        /// The cache's.
        own_tokens: Tokens,
        /// The cache's.
        own_bytes: Bytes,
    },
    /// It was saved from other models.
    #[error(
        "{object}: {blocks} of {stored}, a model that this cache has no root of: make its root first (`PrefixCache::root`), or use another prefix for each model"
    )]
    OtherModel {
        /// Which.
        object: Path,
        /// Its first root.
        stored: Digest,
        /// How many there are.
        blocks: Blocks,
    },
    /// An object is larger than allowed.
    #[error("{object}: {bytes}, and at most {most} are read: raise `StoreSpec`, or save again with smaller segments")]
    TooLarge {
        /// Which.
        object: Path,
        /// Its size.
        bytes: Bytes,
        /// What is allowed.
        most: Bytes,
    },
    /// A block is larger than a segment may be.
    #[error("a block takes {block} in a segment of at most {most}: raise `StoreSpec::most`")]
    Block {
        /// With its name.
        block: Bytes,
        /// What is allowed.
        most: Bytes,
    },
    /// A list of states has a name that cannot be stored, or that another list of the save has.
    #[error(
        "a list of states cannot be named {name:?}: use up to 32 letters, digits and `-`, and another name for each list"
    )]
    List {
        /// The name.
        name: String,
    },
    /// A state is larger than a segment may be.
    #[error("a state takes {state} in a segment of at most {most}: raise `StoreSpec::most`")]
    State {
        /// With its name.
        state: Bytes,
        /// What is allowed.
        most: Bytes,
    },
    /// Segments are put in their order.
    #[error("segment {given} is put, and {expected} comes next: put each once, in the order of `gather`")]
    Order {
        /// Which was put.
        given: u32,
        /// Which comes next.
        expected: u32,
    },
    /// The cache refused.
    #[error(transparent)]
    Cache(#[from] PrefixCacheError),
    /// The pool refused.
    #[error(transparent)]
    Full(#[from] AcquireBlocksError),
    /// The view is of another pool than the cache.
    #[error(transparent)]
    View(#[from] BlockError),
    /// A copy was not launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The fence is not one of the step that wrote the blocks.
    #[error(transparent)]
    Advance(#[from] AdvanceError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] QueueError),
}

/// Where a save ends before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tear {
    /// The object that is damaged.
    pub object: Path,
    /// How.
    pub damage: Damage,
}

impl std::fmt::Display for Tear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; everything before it was used", self.object, self.damage)
    }
}
