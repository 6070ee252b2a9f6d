//! A backend for tests: a journal, poison, quarantine, failures on demand, and devices that finish when they are told to.

use std::{
    any::Any,
    collections::VecDeque,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{AcquireError, Backend, HostBackend, PhaseName, Queue, QueueError, Tag, queue::HostQueue};
use crate::{Bytes, Host, Space};

/// What released memory is filled with.
const POISON: u8 = 0xDE;
/// How many released regions stay mapped (and poisoned), so that a use after free reads poison instead of crashing.
const QUARANTINE: usize = 16;

/// One operation that a [`FakeBackend`] was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number, from 0.
    pub seq: u64,
    /// The engine's phase.
    pub phase: PhaseName,
    /// Who asked.
    pub tag: &'static str,
    /// How many bytes were committed, decommitted or released.
    pub bytes: Bytes,
    /// What was asked.
    pub op: Op,
    /// Whether it was done.
    pub done: bool,
}

/// A kind of backend operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names of the backend's own methods")]
pub enum Op {
    Reserve,
    Commit,
    Decommit,
    Release,
}

/// A backend for tests, of space `S`: real memory with a journal. Clones share everything, so a test keeps one to look at.
///
/// ```
/// use memtier::{Bytes, Device, FakeBackend};
///
/// let fake = FakeBackend::<memtier::Host>::new();
/// fake.fail_at(2); // the third acquisition or commit fails
/// let device = Device::new(fake.clone(), Bytes::mib(1));
/// # drop(device);
/// assert!(fake.journal().is_empty());
/// ```
pub struct FakeBackend<S = Host> {
    state: Arc<Mutex<State>>,
    calls: Arc<Calls>,
    pages: Arc<HostBackend>,
    asynchronous: bool,
    space: PhantomData<fn() -> S>,
}

#[derive(Default)]
struct State {
    journal: Vec<Event>,
    /// The number of the acquisition or commit that fails.
    fail_at: Option<u64>,
    fail_release: bool,
    acquisitions: u64,
    quarantine: VecDeque<(u64, Bytes)>,
}

impl<S> Clone for FakeBackend<S> {
    fn clone(&self) -> Self {
        FakeBackend {
            state: self.state.clone(),
            calls: self.calls.clone(),
            pages: self.pages.clone(),
            asynchronous: self.asynchronous,
            space: PhantomData,
        }
    }
}

impl<S: Space> FakeBackend<S> {
    /// A backend whose launches are finished when they return.
    pub fn new() -> Self {
        let pages = Arc::new(HostBackend::new());
        let calls = Arc::new(Calls { made: AtomicU64::new(0), fail_at: AtomicU64::new(u64::MAX) });
        FakeBackend { state: Arc::default(), calls, pages, asynchronous: false, space: PhantomData }
    }

    /// A backend whose launches finish when, and only when, a fence behind them is waited for: the latest that a real
    /// device could be.
    pub fn asynchronous() -> Self {
        FakeBackend { asynchronous: true, ..Self::new() }
    }

    /// Makes acquisition or commit number `nth`, counted from 0 over the life of the backend, fail. Once.
    pub fn fail_at(&self, nth: u64) {
        self.state().fail_at = Some(nth);
    }

    /// Makes queue operation number `nth` from now on, counted from 0 over all queues, fail: a copy, a mark at either end of a step, or a
    /// wait. Once.
    ///
    /// ```
    /// use memtier::{Bytes, Device, Engine, FakeBackend, Host};
    ///
    /// let fake = FakeBackend::<Host>::new();
    /// fake.fail_queue_at(3);
    /// assert_eq!(fake.queue_calls(), 0);
    /// ```
    pub fn fail_queue_at(&self, nth: u64) {
        self.calls.fail_at.store(self.queue_calls().saturating_add(nth), Ordering::SeqCst);
    }

    /// How many queue operations were asked for so far.
    pub fn queue_calls(&self) -> u64 {
        self.calls.made.load(Ordering::SeqCst)
    }

    /// Makes every release fail from now on (`true`), or none.
    pub fn fail_releases(&self, fail: bool) {
        self.state().fail_release = fail;
    }

    /// Everything that was asked so far.
    pub fn journal(&self) -> Vec<Event> {
        self.state().journal.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Space> Default for FakeBackend<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn note(&mut self, tag: Tag, op: Op, bytes: Bytes, done: bool) {
        let seq = self.journal.len() as u64;
        self.journal.push(Event { seq, phase: tag.phase, tag: tag.name, bytes, op, done });
    }

    /// Whether this acquisition or commit is the one that fails.
    fn due(&mut self) -> bool {
        self.acquisitions += 1;
        self.fail_at.take_if(|nth| *nth == self.acquisitions - 1).is_some()
    }
}

/// Operations of all queues.
struct Calls {
    made: AtomicU64,
    fail_at: AtomicU64,
}

/// A host queue that fails when it is told to.
struct FakeQueue {
    queue: HostQueue,
    calls: Arc<Calls>,
}

impl FakeQueue {
    fn call(&self, operation: &'static str) -> Result<(), QueueError> {
        let number = self.calls.made.fetch_add(1, Ordering::SeqCst);
        let once = self.calls.fail_at.compare_exchange(number, u64::MAX, Ordering::SeqCst, Ordering::SeqCst);
        match once {
            Ok(_) => Err(QueueError { operation, reason: "the test asked for a failure".into(), lost: false }),
            Err(_) => Ok(()),
        }
    }
}

// SAFETY: what the host queue does, it does; what fails does nothing, so `settled` never runs ahead.
unsafe impl Queue for FakeQueue {
    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        self.call("copying to the device")?;
        // SAFETY: by the caller.
        unsafe { self.queue.write(to, from) }
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<(), QueueError> {
        self.call("copying from the device")?;
        // SAFETY: by the caller.
        unsafe { self.queue.read(from, to) }
    }

    unsafe fn read_later(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        self.call("copying from the device")?;
        // SAFETY: by the caller.
        unsafe { self.queue.read_later(from, to, bytes) }
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        self.call("copying on the device")?;
        // SAFETY: by the caller.
        unsafe { self.queue.copy(from, to, bytes) }
    }

    unsafe fn copy_in(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        self.call("copying from the host's memory")?;
        // SAFETY: by the caller.
        unsafe { self.queue.copy_in(from, to, bytes) }
    }

    unsafe fn copy_out(&self, from: u64, to: u64, bytes: usize) -> Result<(), QueueError> {
        self.call("copying to the host's memory")?;
        // SAFETY: by the caller.
        unsafe { self.queue.copy_out(from, to, bytes) }
    }

    unsafe fn write_beside(&self, to: u64, from: &[u8]) -> Result<(), QueueError> {
        self.call("copying to the host's memory")?;
        // SAFETY: by the caller.
        unsafe { self.queue.write_beside(to, from) }
    }

    fn mark(&self, step: u64) -> Result<(), QueueError> {
        self.call("marking a step")?;
        self.queue.mark(step)
    }

    fn wait(&self, step: u64) -> Result<(), QueueError> {
        self.call("waiting")?;
        self.queue.wait(step)
    }

    fn settled(&self) -> u64 {
        self.queue.settled()
    }

    fn native(&self) -> &dyn Any {
        self.queue.native()
    }
}

fn injected(tag: Tag, operation: &'static str, bytes: Bytes) -> AcquireError {
    AcquireError::System { name: tag.name, operation, bytes, reason: "the test asked for a failure".into() }
}

// SAFETY: every range is the host backend's, which keeps the contract; released regions are poisoned while they are still
// mapped and committed, and unmapped when they leave the quarantine, once.
unsafe impl<S: Space> Backend for FakeBackend<S> {
    fn space(&self) -> &'static str {
        S::NAME
    }

    fn granule(&self) -> Bytes {
        self.pages.granule()
    }

    fn open_queue(&self, _tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        let queue = if self.asynchronous { HostQueue::finishing_when_waited_for() } else { HostQueue::synchronous() };
        Ok(Box::new(FakeQueue { queue, calls: self.calls.clone() }))
    }

    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        let mut state = self.state();
        let result = match state.due() {
            true => Err(injected(tag, "reserving", reserved)),
            false => self.pages.reserve(tag, reserved, committed),
        };
        state.note(tag, Op::Reserve, committed, result.is_ok());
        result
    }

    unsafe fn commit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        let mut state = self.state();
        let result = match state.due() {
            true => Err(injected(tag, "committing", to.beyond(from))),
            // SAFETY: by the caller.
            false => unsafe { self.pages.commit(tag, base, from, to) },
        };
        state.note(tag, Op::Commit, to.beyond(from), result.is_ok());
        result
    }

    unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        let result = unsafe { self.pages.decommit(tag, base, from, to) };
        self.state().note(tag, Op::Decommit, to.beyond(from), result.is_ok());
        result
    }

    unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, committed: Bytes) -> Result<(), AcquireError> {
        let mut state = self.state();
        let result = match state.fail_release {
            true => Err(injected(tag, "releasing", reserved)),
            false => Ok(()),
        };
        state.note(tag, Op::Release, committed, result.is_ok());
        result?;
        // SAFETY: the first `committed` bytes are committed and, by the caller, unused.
        unsafe {
            std::ptr::write_bytes(
                std::ptr::with_exposed_provenance_mut::<u8>(base as usize),
                POISON,
                committed.count() as usize,
            )
        };
        state.quarantine.push_back((base, reserved));
        let oldest = (state.quarantine.len() > QUARANTINE).then(|| state.quarantine.pop_front()).flatten();
        match oldest {
            // SAFETY: it was released by its owner, and leaves the queue once.
            Some((base, reserved)) => unsafe { self.pages.release(tag, base, reserved, Bytes::ZERO) },
            None => Ok(()),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (base, reserved) in self.quarantine.drain(..) {
            let tag = Tag { name: "quarantine", phase: PhaseName::Loading, pinned: false };
            // SAFETY: released by its owner, and out of the queue now. A refusal leaks it, in a test.
            let _ = unsafe { HostBackend::new().release(tag, base, reserved, Bytes::ZERO) };
        }
    }
}
