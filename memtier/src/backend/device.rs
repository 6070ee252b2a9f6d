//! A device: one backend, one budget, one set of books. Several engines may share it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{AcquireError, Backend, PhaseName, Queue, Tag};
use crate::Bytes;

/// A memory device: what [`Engine::open`](crate::Engine::open) opens. A name: clones share the backend, the budget and the
/// books, so that two models on one card are counted together.
///
/// ```
/// use memtier::{Bytes, Device, Engine, HostBackend};
///
/// let device = Device::new(HostBackend::new(), Bytes::mib(64));
/// let one = Engine::open(&device);
/// let two = Engine::open(&device);
/// assert_eq!(device.report().live, Bytes::ZERO);
/// # drop((one, two));
/// ```
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceCore>);

/// What a device has handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The most it may hand out at a time.
    pub budget: Bytes,
    /// Committed now.
    pub live: Bytes,
    /// The most that was ever committed.
    pub peak: Bytes,
    /// Acquisitions and commits in each phase: loading, planning, serving. The last one must be zero, or equal
    /// `planned_commits`.
    pub acquisitions: [u64; 3],
    /// Of those while serving, the ones for page-locked host memory.
    pub pinned_acquisitions: u64,
    /// Commits that were paid for by a plan and taken while serving.
    pub planned_commits: u64,
    /// Releases that the system refused; their bytes are lost.
    pub failed_releases: u64,
}

pub(crate) struct DeviceCore {
    backend: Box<dyn Backend>,
    budget: Bytes,
    books: Mutex<Books>,
    failed_releases: AtomicU64,
    last_error: Mutex<Option<AcquireError>>,
}

#[derive(Default)]
struct Books {
    /// Live reservations: base and end.
    ranges: BTreeMap<u64, u64>,
    live: u64,
    peak: u64,
    acquisitions: [u64; 3],
    pinned_acquisitions: u64,
    planned_commits: u64,
}

impl Device {
    /// Opens `backend` for at most `budget` committed bytes at a time.
    pub fn new(backend: impl Backend, budget: Bytes) -> Self {
        let backend = Box::new(backend);
        Device(Arc::new(DeviceCore {
            backend,
            budget,
            books: Mutex::default(),
            failed_releases: AtomicU64::new(0),
            last_error: Mutex::default(),
        }))
    }

    /// The space of its memory.
    pub fn space(&self) -> &'static str {
        self.0.backend.space()
    }

    /// What it has handed out.
    pub fn report(&self) -> DeviceReport {
        self.0.report()
    }

    /// How much of what it has handed out is in physical memory now. `None` where the backend cannot tell: what is committed
    /// is there then.
    pub fn resident(&self) -> Option<Bytes> {
        self.0.resident()
    }

    /// The last release that failed. Reported at the release, and here: a drop cannot return an error, and an error that
    /// is parked would surface at somebody else's call.
    pub fn last_release_error(&self) -> Option<AcquireError> {
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("space", &self.space()).field("report", &self.report()).finish()
    }
}

impl DeviceCore {
    /// What it has handed out.
    pub(crate) fn report(&self) -> DeviceReport {
        let books = self.books();
        DeviceReport {
            budget: self.budget,
            live: Bytes::new(books.live),
            peak: Bytes::new(books.peak),
            acquisitions: books.acquisitions,
            pinned_acquisitions: books.pinned_acquisitions,
            planned_commits: books.planned_commits,
            failed_releases: self.failed_releases.load(Ordering::Relaxed),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counted under the books' lock: no range is released meanwhile.
    fn resident(&self) -> Option<Bytes> {
        let books = self.books();
        let sizes = books.ranges.iter().map(|(base, end)| self.backend.resident(*base, Bytes::new(end - base)));
        sizes.map(|size| size.map(Bytes::count)).sum::<Option<u64>>().map(Bytes::new)
    }

    pub(crate) fn space(&self) -> &'static str {
        self.backend.space()
    }

    pub(crate) fn live(&self) -> Bytes {
        Bytes::new(self.books().live)
    }

    pub(crate) fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        self.backend.open_queue(tag)
    }

    /// `bytes` rounded up to what the backend commits. Sizes near `u64::MAX` stay as they are: no budget allows them.
    pub(crate) fn rounded(&self, bytes: Bytes) -> Bytes {
        bytes.aligned(self.backend.granule().count().max(4096)).unwrap_or(Bytes::MAX)
    }

    /// Counts an acquisition and takes it from the budget.
    fn charge(&self, tag: Tag, bytes: Bytes, planned: bool) -> Result<(), AcquireError> {
        let mut books = self.books();
        books.acquisitions[tag.phase as usize] += 1;
        let serving = tag.phase == PhaseName::Serving;
        books.pinned_acquisitions += u64::from((tag.pinned || self.backend.page_locked()) && serving);
        books.planned_commits += u64::from(planned && serving);
        let total = books.live.checked_add(bytes.count()).filter(|total| *total <= self.budget.count());
        let Some(total) = total else {
            let live = Bytes::new(books.live);
            return Err(AcquireError::OverBudget { name: tag.name, asked: bytes, live, budget: self.budget });
        };
        books.live = total;
        books.peak = books.peak.max(total);
        Ok(())
    }

    fn uncharge(&self, bytes: Bytes) {
        let mut books = self.books();
        books.live = books.live.saturating_sub(bytes.count());
    }

    /// Addresses and initial memory of a new region; sizes are rounded already.
    pub(super) fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        self.charge(tag, committed, false)?;
        let base = self.backend.reserve(tag, reserved, committed).inspect_err(|_| self.uncharge(committed))?;
        // The trait's contract says so already; a backend that breaks it is caught here and not in somebody's weights.
        let end = base.checked_add(reserved.count()).filter(|_| base != 0 && base.is_multiple_of(4096));
        let mut books = self.books();
        let disjoint = end.is_some_and(|end| {
            let before = books.ranges.range(..=base).next_back().is_none_or(|(_, before_end)| *before_end <= base);
            let after = books.ranges.range(base..).next().is_none_or(|(after, _)| *after >= end);
            before && after
        });
        match end.filter(|_| disjoint) {
            Some(end) => {
                books.ranges.insert(base, end);
                Ok(base)
            }
            None => {
                books.live = books.live.saturating_sub(committed.count());
                Err(AcquireError::Overlap { name: tag.name, base, bytes: reserved })
            }
        }
    }

    /// # Safety
    /// As [`Backend::commit`].
    pub(super) unsafe fn commit(
        &self,
        tag: Tag,
        base: u64,
        from: Bytes,
        to: Bytes,
        planned: bool,
    ) -> Result<(), AcquireError> {
        let more = to.beyond(from);
        self.charge(tag, more, planned)?;
        // SAFETY: by the caller.
        unsafe { self.backend.commit(tag, base, from, to) }.inspect_err(|_| self.uncharge(more))
    }

    /// # Safety
    /// As [`Backend::decommit`].
    pub(super) unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        unsafe { self.backend.decommit(tag, base, from, to) }?;
        self.uncharge(to.beyond(from));
        Ok(())
    }

    /// # Safety
    /// As [`Backend::release`].
    pub(super) unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, committed: Bytes) {
        // SAFETY: by the caller.
        match unsafe { self.backend.release(tag, base, reserved, committed) } {
            Ok(()) => {
                self.uncharge(committed);
                self.books().ranges.remove(&base);
            }
            Err(error) => {
                self.failed_releases.fetch_add(1, Ordering::Relaxed);
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    }
}
