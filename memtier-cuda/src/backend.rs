//! Device memory as a [`Backend`]: everything is reserved addresses with physical memory behind them.

use std::sync::{Arc, Mutex, PoisonError};

use memtier::{AcquireError, Backend, Bytes, Cuda, Event, Op, Queue, Space, Tag};

use crate::{
    driver::{Context, DeviceInfo},
    error::{DriverError, OpenError},
    physical::Physical,
    queue::CudaQueue,
    vmm::{ALLOCATING, Regions, VmmError},
};

/// How a [`CudaBackend`] takes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CudaOptions {
    /// The device's number among the visible ones.
    pub ordinal: u32,
    /// The most bytes of one physical allocation. Coarse ones map faster; a commit can only be given back as a whole one.
    pub chunk: Bytes,
    /// Page-locked host memory of each queue, for copies in and out.
    pub staging: Bytes,
    /// Whether operations are written into the [journal](CudaBackend::journal), which grows for ever.
    pub journal: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        CudaOptions { ordinal: 0, chunk: Bytes::mib(256), staging: Bytes::mib(8), journal: false }
    }
}

/// The memory of one CUDA device. Clones share everything.
///
/// A fixed acquisition is a growable one that is committed as a whole, so nothing is `cudaMalloc`ed, and no memory is
/// managed: what does not fit is refused by the driver instead of being paged.
///
/// ```no_run
/// use memtier::{Bytes, Device, Engine};
/// use memtier_cuda::{CudaBackend, OpenError};
///
/// let backend = CudaBackend::open(0)?;
/// let budget = backend.memory()?.free;
/// let engine = Engine::open(&Device::new(backend, budget));
/// # drop(engine);
/// # Ok::<_, OpenError>(())
/// ```
#[derive(Clone)]
pub struct CudaBackend {
    context: Arc<Context>,
    regions: Arc<Regions<Physical>>,
    options: CudaOptions,
    granule: Bytes,
    journal: Arc<Mutex<Vec<Event>>>,
}

/// Device memory as the driver reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// What nobody on the machine has taken.
    pub free: Bytes,
    /// All of it.
    pub total: Bytes,
}

impl CudaBackend {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// [`OpenError`] names what is missing. Never panics, also without a driver.
    pub fn open(ordinal: u32) -> Result<Self, OpenError> {
        Self::with(CudaOptions { ordinal, ..CudaOptions::default() })
    }

    /// Opens a device with options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with(options: CudaOptions) -> Result<Self, OpenError> {
        let context = Context::open(options.ordinal)?;
        let physical = Physical(context.clone());
        let granule = physical.granule()?.next_power_of_two().max(4096);
        let chunk = options.chunk.count().max(1).checked_next_multiple_of(granule).unwrap_or(granule);
        let regions = Arc::new(Regions::new(physical, chunk));
        Ok(CudaBackend { context, regions, options, granule: Bytes::new(granule), journal: Arc::default() })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// Device memory as the driver reports it now.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn memory(&self) -> Result<DeviceMemory, DriverError> {
        let (free, total) = self.context.memory()?;
        Ok(DeviceMemory { free: Bytes::new(free), total: Bytes::new(total) })
    }

    /// Everything that was asked so far; empty without [`CudaOptions::journal`].
    pub fn journal(&self) -> Vec<Event> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a call of the driver fail once, as if memory were out, without making it: what the engine does then is a test of its
    /// own. `call` is the driver's name for it, without a version (`cuMemCreate`, `cuMemHostAlloc`, `cuStreamCreate`, ...); `after` so many
    /// such calls that are made.
    ///
    /// ```no_run
    /// use memtier::{Bytes, Device, Engine, Limits};
    /// # fn show(engine: memtier::Engine<memtier::Loading>, backend: memtier_cuda::CudaBackend) {
    /// backend.fail("cuMemCreate", 0);
    /// let refused = engine.plan(Limits::new("cuda", Bytes::gib(1))).err().expect("it was told to fail");
    /// println!("{}", refused.report);
    /// # }
    /// ```
    pub fn fail(&self, call: &'static str, after: u64) {
        self.context.faults.arm(call, after);
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What a call refused; for want of memory, with how much there is.
    fn refused(&self, tag: Tag, bytes: Bytes) -> impl FnOnce(VmmError) -> AcquireError {
        move |mut error| {
            if error.operation == ALLOCATING
                && let Ok(DeviceMemory { free, total }) = self.memory()
            {
                error.reason += &format!(
                    "; {free} of the device's {total} are free: plan with a budget that they hold, or end what else is on it"
                );
            }
            failed(tag, bytes)(error)
        }
    }

    fn note(&self, tag: Tag, op: Op, bytes: Bytes, done: bool) {
        if self.options.journal {
            let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            let seq = journal.len() as u64;
            journal.push(Event { seq, phase: tag.phase, tag: tag.name, bytes, op, done });
        }
    }
}

impl std::fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaBackend").field("device", &self.context.info).field("options", &self.options).finish()
    }
}

fn failed(tag: Tag, bytes: Bytes) -> impl FnOnce(VmmError) -> AcquireError {
    move |VmmError { operation, reason }| AcquireError::System { name: tag.name, operation, bytes, reason }
}

// SAFETY: reservations are the driver's, which overlap nothing. A committed range is mapped with read and write access
// until it is decommitted or released; a commit that fails unmaps what it mapped. Memory starts with whatever was there,
// which is initialised as far as the device is concerned: the CPU never dereferences it. Addresses never change.
unsafe impl Backend for CudaBackend {
    fn space(&self) -> &'static str {
        Cuda::NAME
    }

    fn granule(&self) -> Bytes {
        self.granule
    }

    fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        let staging = self.options.staging;
        match CudaQueue::open(&self.context, staging.count()) {
            Ok(queue) => Ok(Box::new(queue)),
            Err(error) => Err(AcquireError::System {
                name: tag.name,
                operation: "opening a stream with page-locked staging",
                bytes: staging,
                reason: error.to_string(),
            }),
        }
    }

    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        let result = self.regions.reserve(reserved.count(), committed.count()).map_err(self.refused(tag, committed));
        self.note(tag, Op::Reserve, committed, result.is_ok());
        result
    }

    unsafe fn commit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        let result = unsafe { self.regions.commit(base, from.count(), to.count()) };
        let result = result.map_err(self.refused(tag, to.beyond(from)));
        self.note(tag, Op::Commit, to.beyond(from), result.is_ok());
        result
    }

    unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        let result = unsafe { self.regions.decommit(base, from.count(), to.count()) };
        let result = result.map_err(failed(tag, to.beyond(from)));
        self.note(tag, Op::Decommit, to.beyond(from), result.is_ok());
        result
    }

    unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, committed: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        let result = unsafe { self.regions.release(base) }.map_err(failed(tag, reserved));
        self.note(tag, Op::Release, committed, result.is_ok());
        result
    }

    fn resident(&self, base: u64, _reserved: Bytes) -> Option<Bytes> {
        self.regions.resident(base).map(Bytes::new)
    }
}
