//! L1: physical memory. A [`Backend`] hands it out, a [`Device`] keeps the books, a region owns one piece of it.
//!
//! Nothing above this module talks to an operating system or a driver.

mod books;
mod device;
mod fake;
mod host;
mod queue;
mod region;

pub(crate) use books::{Words, books, fetch};
pub(crate) use device::DeviceCore;
pub use device::{Device, DeviceReport};
pub use fake::{Event, FakeBackend, Op};
pub use host::HostBackend;
pub use queue::{Baked, Queue, QueueError};
pub(crate) use region::{PINNED, PhaseCell, Region};

use crate::Bytes;

/// What is acquired, for the books and for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Who wants it: the name of a plan line or of an arena.
    pub name: &'static str,
    /// The engine's phase.
    pub phase: PhaseName,
    /// Whether it is page-locked host memory: counted apart.
    pub pinned: bool,
}

/// The phase an acquisition happened in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PhaseName {
    /// The device is open, nothing is carved.
    Loading,
    /// A plan is accepted, storage is being carved.
    Planning,
    /// The map is frozen.
    Serving,
}

/// The backend did not do what was asked. Nothing was taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The device's budget would be exceeded.
    #[error(
        "`{name}` asks for {asked} and {live} of the budget of {budget} are in use: raise the budget or plan for less"
    )]
    OverBudget {
        /// Who asked.
        name: &'static str,
        /// How much was asked.
        asked: Bytes,
        /// What was live before.
        live: Bytes,
        /// The device's budget.
        budget: Bytes,
    },
    /// The operating system or the driver refused.
    #[error("`{name}`: {operation} of {bytes} failed: {reason}")]
    System {
        /// Who asked.
        name: &'static str,
        /// What was tried.
        operation: &'static str,
        /// How much.
        bytes: Bytes,
        /// The system's own words.
        reason: String,
    },
    /// The backend handed out memory that overlaps memory it handed out before: a bug in the backend. It is not used.
    #[error("`{name}`: the backend handed out {bytes} at {base:#x}, which overlaps memory in use or is no address")]
    Overlap {
        /// Who asked.
        name: &'static str,
        /// Where.
        base: u64,
        /// How much.
        bytes: Bytes,
    },
}

/// Acquires and releases memory of one space. Fallible, and never panics.
///
/// Two kinds of acquisition: fixed (`committed == reserved`) and growable (`reserve` with an initial commit, then `commit`
/// and `decommit` at an address that never changes). Budgets and accounting are the [`Device`]'s; a backend only does it.
///
/// # Safety
///
/// Spans are made from what `reserve` returns, and safe code reads and writes through them. The implementer promises:
///
/// * `reserve` returns a range of `reserved` bytes that overlaps no other live range, aligned to [`granule`](Self::granule)
///   (at least 4096 bytes); its first `committed` bytes can be read and written until `release`, and hold initialised data.
/// * After `commit(base, from, to)` returned `Ok`, bytes `from..to` can be read and written; addresses do not change. After
///   an `Err`, exactly what was committed before is committed.
/// * Memory of space `host` can be dereferenced by the CPU from any thread; memory of other spaces is never dereferenced
///   by this crate.
/// * `decommit` and `release` touch the given range only.
pub unsafe trait Backend: Send + Sync + 'static {
    /// The [`Space::NAME`](crate::Space::NAME) its addresses belong to.
    fn space(&self) -> &'static str;

    /// What commits are rounded up to, in bytes: a power of two, at least 4096.
    fn granule(&self) -> Bytes;

    /// Opens a queue for launches and copies: what a [`Stream`](crate::Stream) runs on.
    ///
    /// # Errors
    /// [`AcquireError::System`].
    fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError>;

    /// Reserves addresses and commits the first `committed` bytes of them. Both are multiples of the granule.
    ///
    /// # Errors
    /// [`AcquireError::System`]; nothing is reserved then.
    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError>;

    /// Commits the bytes from `from` to `to` of a reservation, multiples of the granule. Addresses do not change.
    ///
    /// # Errors
    /// [`AcquireError::System`]; nothing more is committed then.
    ///
    /// # Safety
    /// `base` came from `reserve` of this backend and was not released; `from..to` is inside it and not committed.
    unsafe fn commit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError>;

    /// Gives the physical memory of `from..to` back, multiples of the granule. Addresses stay reserved.
    ///
    /// # Errors
    /// [`AcquireError::System`]; the range is still committed then.
    ///
    /// # Safety
    /// As for `commit`, but `from..to` is committed and nothing will read or write it before it is committed again.
    unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError>;

    /// Gives a reservation back, of which `committed` bytes were committed.
    ///
    /// # Errors
    /// [`AcquireError::System`]; the caller counts the memory as lost.
    ///
    /// # Safety
    /// `base` came from `reserve(reserved)` of this backend, is released once, and nothing will read or write it again.
    unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, committed: Bytes) -> Result<(), AcquireError>;

    /// Whether its memory is page-locked host memory: what is acquired of it while serving is counted apart.
    fn page_locked(&self) -> bool {
        false
    }

    /// How much of a reservation is in physical memory now. `None` where that is not known, or is what was committed.
    fn resident(&self, base: u64, reserved: Bytes) -> Option<Bytes> {
        let _ = (base, reserved);
        None
    }
}
