//! The prompt path beside an expert cache: buffers of its own, or borrowed from the cache's tail.
//!
//! A mixture of experts whose experts do not all fit keeps the hot ones in a cache of slots that takes what the rest of
//! the plan leaves. The prompt path needs large buffers for a short time. It may *borrow* the last slots of the cache: the
//! experts in them are gone until the loan is over, and are loaded again afterwards. Or it *owns* buffers that are priced
//! before the cache is sized, and the cache is smaller.
//!
//! One policy decides, everywhere: [`choose`] when the engine plans, [`after_touch`] when the cache has been opened and the
//! driver has said what is really left, [`Accepted::check`] before every prompt. What was accepted is a contract: run time
//! may use less, never more and never another mode. All costs are injected, so every decision is a table test.
//!
//! ```
//! use memtier::plan::loan::{Chunk, Costs, Mode, Policy, Room, choose};
//! use memtier::{Bytes, Tokens};
//!
//! // Slots of 2 MiB; the prompt path takes 40 MiB, a ring of 4 MiB a slot, and 64 KiB a token.
//! let costs = Costs {
//!     prompt: &|chunk, ring| Bytes::new((40 << 20) + (ring << 22) + chunk.count() * 65_536),
//!     tail: &|_slots, lent| Bytes::mib(2 * lent),
//!     rings: &[16, 8],
//! };
//! let room = Room { free: Bytes::mib(9000), after: Bytes::mib(1000), slots: None, least_slots: 1, borrow: true };
//! let plan = choose(&Policy::default(), &costs, &room, Chunk::Auto { ceiling: Tokens::new(8192) })?;
//! assert_eq!(plan.accepted.chunk, Tokens::new(8192));
//! // 40 + 64 + 512 MiB out of a cache of 4000 slots.
//! assert_eq!((plan.slots, plan.accepted.mode), (4000, Mode::Borrowed { slots: 308, bytes: Bytes::mib(616), ring: 16 }));
//! # Ok::<(), memtier::plan::loan::NoRoom>(())
//! ```

mod policy;
mod residency;
mod revalidate;

pub use policy::choose;
pub use residency::{Lent, Refill, Residency};
pub use revalidate::{AfterTouch, Opened, after_touch};

use crate::units::{Bytes, Tokens};

/// What things cost. Pure: equal arguments give equal answers, and a longer chunk or a larger ring never costs less.
pub struct Costs<'a> {
    /// The prompt path's buffers for a chunk, with a ring of so many staging slots.
    pub prompt: &'a dyn Fn(Tokens, u64) -> Bytes,
    /// Of a cache of so many slots, the bytes of so many at its end. Slots may differ in size, so the layout that is really
    /// opened is asked, not the largest slot.
    pub tail: &'a dyn Fn(u64, u64) -> Bytes,
    /// Ring sizes to try, the fastest first. Empty means a ring of none.
    pub rings: &'a [u64],
}

/// The numbers of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The largest part of the cache that may be lent, in hundredths.
    pub lend_percent: u64,
    /// A cache of fewer slots lends nothing.
    pub lend_floor: u64,
    /// Chunks are multiples of this.
    pub grid: Tokens,
    /// Tried in this order when no chunk on the grid can be lent.
    pub list: &'static [u64],
    /// What an automatic chunk owns at most when nothing can be lent.
    pub owned_ceiling: Tokens,
    /// How often a cache may be shrunk after it has been opened.
    pub shrinks: u32,
}

impl Default for Policy {
    /// Three quarters of a cache of at least 128 slots, chunks of 256, an owned fallback of 1024, six shrinks.
    fn default() -> Self {
        Self {
            lend_percent: 75,
            lend_floor: 128,
            grid: Tokens::new(256),
            list: &[8192, 4096, 2048, 1024, 512],
            owned_ceiling: Tokens::new(1024),
            shrinks: 6,
        }
    }
}

/// The chunk that the operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// As large as can be had, up to this.
    Auto {
        /// The most.
        ceiling: Tokens,
    },
    /// Exactly this, halved at planning time if it must be, never at run time.
    Fixed(Tokens),
}

/// What there is for cache and prompt path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free bytes before the cache is opened.
    pub free: Bytes,
    /// What must be left once it is: the operator's reserve, a draft head, graphs.
    pub after: Bytes,
    /// Slots that the operator fixed; `None` is as many as fit.
    pub slots: Option<u64>,
    /// Fewer slots than this cannot decode (one, with speculation).
    pub least_slots: u64,
    /// Whether the machinery for borrowing exists in this mode of the engine.
    pub borrow: bool,
}

/// Where the prompt path's buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the last slots of the cache.
    Borrowed {
        /// Slots lent.
        slots: u64,
        /// Bytes of the prompt path.
        bytes: Bytes,
        /// Its ring.
        ring: u64,
    },
    /// In memory of their own.
    Owned {
        /// Bytes of the prompt path.
        bytes: Bytes,
        /// Its ring.
        ring: u64,
    },
}

/// What run time is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Tokens of a chunk, at most.
    pub chunk: Tokens,
    /// Where its buffers are, and their size at most.
    pub mode: Mode,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanPlan {
    /// Slots of the cache.
    pub slots: u64,
    /// The prompt path.
    pub accepted: Accepted,
    /// Why it is not what was asked for.
    pub note: Option<Note>,
}

/// Why a decision is not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing could be lent; the buffers are owned.
    OwnedInstead,
    /// The chunk was cut to what fits.
    ChunkCut {
        /// What was asked for.
        from: Tokens,
    },
}

/// Not even the smallest chunk fits. `Display` is the operator's sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prompt path does not fit: {} MiB free, {} MiB must stay free, {} MiB for the least cache of {least_slots} slots, \
     and a chunk of {smallest} tokens takes {} MiB; short by {} MiB. A smaller context, a smaller KV type, a smaller \
     reserve or fewer tokens resident make room",
    free.in_mib(), after.in_mib(), cache.in_mib(), prompt.in_mib(), short.in_mib()
)]
pub struct NoRoom {
    /// Free bytes before the cache is opened.
    pub free: Bytes,
    /// What must be left.
    pub after: Bytes,
    /// The least cache.
    pub cache: Bytes,
    /// Its slots.
    pub least_slots: u64,
    /// The smallest chunk tried, in tokens.
    pub smallest: u64,
    /// What it takes.
    pub prompt: Bytes,
    /// By how much all that is over.
    pub short: Bytes,
}

/// What run time is about to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Tokens of the chunk.
    pub chunk: Tokens,
    /// Where its buffers are.
    pub mode: Mode,
}

/// A use that the accepted plan does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Departure {
    /// Borrowed instead of owned, or the other way round.
    #[error("the accepted plan has the prompt path {accepted}, and it is about to be {found}")]
    Mode {
        /// `borrowed` or `owned`.
        accepted: &'static str,
        /// The other.
        found: &'static str,
    },
    /// More than was accepted.
    #[error("the accepted plan allows {accepted} {what}, and {found} are about to be used")]
    More {
        /// Tokens, slots or bytes.
        what: &'static str,
        /// At most.
        accepted: u64,
        /// About to be used.
        found: u64,
    },
}

impl Accepted {
    /// Whether run time may use this: less is fine (a shorter prompt), more or another mode is not.
    ///
    /// # Errors
    /// The [`Departure`]. Nothing has been allocated yet; the engine refuses the prompt, or warns when it is advisory.
    pub fn check(&self, used: &Use) -> Result<(), Departure> {
        let at_most = |what, accepted: u64, found: u64| {
            if found <= accepted { Ok(()) } else { Err(Departure::More { what, accepted, found }) }
        };
        match (self.mode, used.mode) {
            (Mode::Borrowed { slots, bytes, .. }, Mode::Borrowed { slots: used_slots, bytes: used_bytes, .. }) => {
                at_most("slots", slots, used_slots)?;
                at_most("bytes", bytes.count(), used_bytes.count())?;
            }
            (Mode::Owned { bytes, .. }, Mode::Owned { bytes: used_bytes, .. }) => {
                at_most("bytes", bytes.count(), used_bytes.count())?;
            }
            (accepted, found) => return Err(Departure::Mode { accepted: accepted.name(), found: found.name() }),
        }
        at_most("tokens", self.chunk.count(), used.chunk.count())
    }
}

impl Mode {
    /// `borrowed` or `owned`.
    pub const fn name(&self) -> &'static str {
        match self {
            Mode::Borrowed { .. } => "borrowed",
            Mode::Owned { .. } => "owned",
        }
    }

    /// What the prompt path takes beside the cache.
    pub const fn beside(&self) -> Bytes {
        match self {
            Mode::Borrowed { .. } => Bytes::ZERO,
            Mode::Owned { bytes, .. } => *bytes,
        }
    }
}
