//! Page-locked host memory of a queue: a ring of segments for copies in, one more for copies out.
#![expect(clippy::disallowed_methods, reason = "a backend: this is where memory comes from")]

use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::Arc,
};

use cudarc::driver::sys;

use crate::{
    driver::{Context, check},
    error::DriverError,
    queue::CudaStream,
};

/// Segments of the ring. One is filled while the device reads the others.
const SEGMENTS: usize = 4;
/// Every copy starts on a multiple of this in its segment.
const ALIGN: usize = 64;

/// Page-locked host memory.
struct Pinned {
    context: Arc<Context>,
    base: NonNull<u8>,
}

// SAFETY: it owns its memory.
unsafe impl Send for Pinned {}

impl Pinned {
    fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Self, DriverError> {
        context.bind()?;
        let mut base: *mut c_void = ptr::null_mut();
        context.acquire("cuMemHostAlloc", || {
            // SAFETY: writes an address, freed in `drop`.
            unsafe { sys::cuMemHostAlloc(&mut base, bytes, 0) }
        })?;
        let missing = || DriverError {
            call: "cuMemHostAlloc",
            code: 0,
            name: "CUDA_SUCCESS".into(),
            text: "it gave no address".into(),
        };
        let base = NonNull::new(base.cast()).ok_or_else(missing)?;
        // SAFETY: `bytes` long and ours; from here on it is initialised.
        unsafe { ptr::write_bytes(base.as_ptr(), 0, bytes) };
        Ok(Pinned { context: context.clone(), base })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once, freed once; the queue's stream was waited for before its staging is dropped.
            let _ = unsafe { sys::cuMemFreeHost(self.base.as_ptr().cast()) };
        }
    }
}

/// The staging of one queue.
pub(crate) struct Staging {
    memory: Pinned,
    /// Bytes of one segment.
    segment: usize,
    /// The segment being filled, and how far it is.
    at: (usize, usize),
    /// For each segment, the event behind the last copy out of it.
    events: [sys::CUevent; SEGMENTS],
}

// SAFETY: it owns its memory and events.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn open(context: &Arc<Context>, bytes: u64) -> Result<Self, DriverError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX / 2).max((SEGMENTS + 1) * 4096);
        let segment = bytes / (SEGMENTS + 1) / ALIGN * ALIGN;
        let memory = Pinned::allocate(context, segment * (SEGMENTS + 1))?;
        let mut staging = Staging { memory, segment, at: (0, 0), events: [ptr::null_mut(); SEGMENTS] };
        for event in &mut staging.events {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
            context.acquire("cuEventCreate", || {
                // SAFETY: writes a handle, destroyed in `drop`; the context was made current above.
                unsafe { sys::cuEventCreate(event, flags) }
            })?;
        }
        Ok(staging)
    }

    /// Copies `from` to device address `to`, in the order of the stream.
    ///
    /// # Safety
    /// `to` is committed device memory as long as `from`.
    pub(crate) unsafe fn write(&mut self, stream: &CudaStream, to: u64, from: &[u8]) -> Result<(), DriverError> {
        stream.enqueue(|raw| {
            // SAFETY: by the caller.
            unsafe { self.write_on(raw, to, from) }
        })
    }

    /// # Safety
    /// As `write`; `raw` is the stream, its context current.
    unsafe fn write_on(&mut self, raw: sys::CUstream, mut to: u64, from: &[u8]) -> Result<(), DriverError> {
        for piece in from.chunks(self.segment) {
            self.make_room(raw, piece.len())?;
            let (segment, used) = self.at;
            // SAFETY: `make_room` left as many bytes in this segment, which no copy of the device reads.
            let host = unsafe { self.memory.base.add(segment * self.segment + used) };
            // SAFETY: as above; the two are different memory.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), host.as_ptr(), piece.len()) };
            // SAFETY: by the caller, for the device; the staging is not written again before the segment's event is done.
            let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, host.as_ptr().cast(), piece.len(), raw) };
            check("cuMemcpyHtoDAsync", result)?;
            self.at.1 = (used + piece.len()).next_multiple_of(ALIGN);
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Goes to the next segment when this one has not `bytes` left: waits until the device has read what was there.
    fn make_room(&mut self, stream: sys::CUstream, bytes: usize) -> Result<(), DriverError> {
        let (segment, used) = self.at;
        if used + bytes <= self.segment {
            return Ok(());
        }
        // SAFETY: live handles of the current context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.events[segment], stream) })?;
        let next = (segment + 1) % SEGMENTS;
        // SAFETY: a live event; one that was never recorded is done.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.events[next]) })?;
        self.at = (next, 0);
        Ok(())
    }

    /// Waits for what was queued, and copies `from` out.
    ///
    /// # Safety
    /// `from` is committed device memory as long as `to`.
    pub(crate) unsafe fn read(&mut self, stream: &CudaStream, from: u64, to: &mut [u8]) -> Result<(), DriverError> {
        // SAFETY: the segment behind the ring; only reads use it, under the lock, and each waits for its copy.
        let host = unsafe { self.memory.base.add(SEGMENTS * self.segment) };
        let mut from = from;
        for piece in to.chunks_mut(self.segment) {
            stream.enqueue(|raw| {
                // SAFETY: by the caller, for the device; the host side is a whole segment.
                let result = unsafe { sys::cuMemcpyDtoHAsync_v2(host.as_ptr().cast(), from, piece.len(), raw) };
                check("cuMemcpyDtoHAsync", result)
            })?;
            stream.synchronize()?;
            // SAFETY: the copy is done; the two are different memory.
            unsafe { ptr::copy_nonoverlapping(host.as_ptr(), piece.as_mut_ptr(), piece.len()) };
            from += piece.len() as u64;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.memory.context.bind().is_ok() {
            for event in self.events.into_iter().filter(|event| !event.is_null()) {
                // SAFETY: created once, destroyed once.
                let _ = unsafe { sys::cuEventDestroy_v2(event) };
            }
        }
    }
}
