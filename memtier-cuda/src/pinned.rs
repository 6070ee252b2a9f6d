//! Page-locked host memory as a [`Backend`] of space `host`: what copies to and from the device run through at full speed, beside its
//! kernels.
#![expect(clippy::disallowed_methods, reason = "a backend: this is where memory comes from")]

use std::{fmt, sync::Arc};

use cudarc::driver::sys;
use memtier::{AcquireError, Backend, Bytes, Host, HostBackend, PhaseName, Queue, Space, Tag};

use crate::{
    CudaBackend,
    driver::{Context, check},
    vmm::{Regions, Vmm, VmmError},
};

/// Host memory that the driver has page-locked, for what is copied to and from a CUDA device: cold tiers, layers beside the device,
/// buffers that results are read back into. Clones share it.
///
/// Regions grow as those of [`HostBackend`] do; what is committed is registered with the driver, and counts as pinned in the
/// [`DeviceReport`](memtier::DeviceReport). A copy of [`HostBackend`]'s memory goes through the driver's own buffer, and the thread waits
/// for it; a copy of this memory runs beside everything else.
///
/// Page-locked memory is taken from everybody on the machine: give the [`Device`](memtier::Device) a budget of what can be spared.
///
/// ```no_run
/// use memtier::{Bytes, Device, Engine};
/// use memtier_cuda::{CudaBackend, OpenError, PinnedBackend};
///
/// let backend = CudaBackend::open(0)?;
/// let device = Device::new(backend.clone(), backend.memory()?.free);
/// let beside = Device::new(PinnedBackend::new(&backend), Bytes::gib(4));
/// let engine = Engine::open(&device).with(&beside).map_err(|_| "has one already");
/// # drop(engine);
/// # Ok::<_, OpenError>(())
/// ```
#[derive(Clone)]
pub struct PinnedBackend {
    regions: Arc<Regions<Locked>>,
    granule: Bytes,
}

impl PinnedBackend {
    /// Memory for copies to and from the device of `backend`.
    pub fn new(backend: &CudaBackend) -> Self {
        let host = HostBackend::new();
        // Registering is slow, page by page: larger commits are no slower for it.
        let granule = Bytes::new(host.granule().count().max(64 << 10));
        let locked = Locked { context: backend.context().clone(), host };
        // A commit is one registration: nothing is gained by several.
        PinnedBackend { regions: Arc::new(Regions::new(locked, u64::MAX)), granule }
    }
}

impl fmt::Debug for PinnedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinnedBackend")
    }
}

/// Host memory that is registered where it is committed.
struct Locked {
    context: Arc<Context>,
    host: HostBackend,
}

/// For the backend below, which says nothing of it: messages carry the caller's.
const TAG: Tag = Tag { name: "page-locked host memory", phase: PhaseName::Planning, pinned: true };

// SAFETY: reservations are the system's, which overlap nothing; what is mapped can be used until it is unmapped, registered or not.
unsafe impl Vmm for Locked {
    /// The pages are the reservation's own: there is nothing to hold them by.
    type Handle = ();
    type Error = String;

    fn reserve(&self, bytes: u64) -> Result<u64, String> {
        self.host.reserve(TAG, Bytes::new(bytes), Bytes::ZERO).map_err(|error| error.to_string())
    }

    unsafe fn free(&self, base: u64, bytes: u64) -> Result<(), String> {
        // SAFETY: by the caller.
        unsafe { self.host.release(TAG, base, Bytes::new(bytes), Bytes::ZERO) }.map_err(|error| error.to_string())
    }

    fn create(&self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }

    unsafe fn release(&self, (): ()) -> Result<(), String> {
        Ok(())
    }

    unsafe fn map(&self, at: u64, bytes: u64, (): ()) -> Result<(), String> {
        let text = |error: AcquireError| error.to_string();
        // SAFETY: by the caller the range is reserved and not committed.
        unsafe { self.host.commit(TAG, at, Bytes::ZERO, Bytes::new(bytes)) }.map_err(text)?;
        let registered = self.context.bind().and_then(|()| {
            self.context.acquire("cuMemHostRegister", || {
                let address = std::ptr::with_exposed_provenance_mut(at as usize);
                // SAFETY: committed above, and ours until it is unmapped.
                unsafe { sys::cuMemHostRegister_v2(address, bytes as usize, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            })
        });
        if registered.is_ok() {
            self.context.locked.add(at, bytes);
        }
        registered.map_err(|error| {
            // SAFETY: committed above; nobody knows it yet.
            let undone = unsafe { self.host.decommit(TAG, at, Bytes::ZERO, Bytes::new(bytes)) };
            match undone {
                Ok(()) => format!("{error}; page-lock less, or raise the limit (`ulimit -l`)"),
                Err(again) => format!("{error}; and its pages could not be given back: {again}"),
            }
        })
    }

    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<(), String> {
        self.context.bind().map_err(|error| error.to_string())?;
        let address = std::ptr::with_exposed_provenance_mut(at as usize);
        // SAFETY: registered by `map`; by the caller nothing uses it.
        let unregistered = check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(address) });
        // A context that is gone has forgotten its registrations: the pages are the system's all the same.
        if let Err(error) = unregistered
            && !error.is_lost()
        {
            return Err(error.to_string());
        }
        self.context.locked.remove(at);
        // SAFETY: committed by `map`; by the caller nothing uses it.
        unsafe { self.host.decommit(TAG, at, Bytes::ZERO, Bytes::new(bytes)) }.map_err(|error| error.to_string())
    }

    unsafe fn give_access(&self, _at: u64, _bytes: u64) -> Result<(), String> {
        Ok(())
    }
}

fn failed(tag: Tag, bytes: Bytes) -> impl FnOnce(VmmError) -> AcquireError {
    move |VmmError { operation, reason }| AcquireError::System { name: tag.name, operation, bytes, reason }
}

// SAFETY: as of `HostBackend`, whose memory it is; registering changes nothing of what the CPU sees.
unsafe impl Backend for PinnedBackend {
    fn space(&self) -> &'static str {
        Host::NAME
    }

    fn granule(&self) -> Bytes {
        self.granule
    }

    fn open_queue(&self, tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        HostBackend::new().open_queue(tag)
    }

    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        self.regions.reserve(reserved.count(), committed.count()).map_err(failed(tag, committed))
    }

    unsafe fn commit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        unsafe { self.regions.commit(base, from.count(), to.count()) }.map_err(failed(tag, to.beyond(from)))
    }

    unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        unsafe { self.regions.decommit(base, from.count(), to.count()) }.map_err(failed(tag, to.beyond(from)))
    }

    unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, _committed: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller.
        unsafe { self.regions.release(base) }.map_err(failed(tag, reserved))
    }

    fn page_locked(&self) -> bool {
        true
    }

    fn resident(&self, base: u64, _reserved: Bytes) -> Option<Bytes> {
        self.regions.resident(base).map(Bytes::new)
    }
}
