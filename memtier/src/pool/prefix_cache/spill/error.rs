//! Why nothing was moved between two tiers.

use super::PrefixCacheError;
use crate::{
    pool::{AcquireBlocksError, AdvanceError, BlockError},
    record::LaunchError,
    units::Tokens,
};

/// Nothing was moved, or less than was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The two pools' blocks differ.
    #[error(
        "blocks of the first tier are {hot} of {hot_units} units and of the second {cold} of {cold_units}: give both pools one shape"
    )]
    Shape {
        /// Tokens in a block of the first.
        hot: Tokens,
        /// Tokens in a block of the second.
        cold: Tokens,
        /// Units of the element in a block of the first.
        hot_units: usize,
        /// Units of the element in a block of the second.
        cold_units: usize,
    },
    /// The two caches are one.
    #[error("both tiers are the same cache: make the second over a pool of its own")]
    OneTier,
    /// No path could ever be moved.
    #[error("{paths} paths of {longest} cannot be moved: at least one path of one block")]
    Nothing {
        /// What was asked.
        paths: usize,
        /// What was asked.
        longest: Tokens,
    },
    /// A view is not one of the caches' pools.
    #[error("the view is of another pool than the {tier} tier's cache: give `first` and `second` in their order")]
    ForeignPool {
        /// Which tier.
        tier: &'static str,
    },
    /// The request is of another pool, or does not end at the end of a block.
    #[error("{tokens} of the request are not whole blocks of the first tier: restore before anything else is written")]
    Ragged {
        /// What it has.
        tokens: Tokens,
    },
    /// One of the caches refused.
    #[error(transparent)]
    Cache(#[from] PrefixCacheError),
    /// The request got no blocks to copy into.
    #[error(transparent)]
    Full(#[from] AcquireBlocksError),
    /// A block cannot be written.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A copy was not launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The fence is not one of the copies' step.
    #[error(transparent)]
    Advance(#[from] AdvanceError),
}
