//! Host memory as device memory: the embedded default. Growth is real: addresses are reserved, pages are committed.
#![allow(clippy::disallowed_methods, reason = "this is a backend: the one layer that may ask the system for memory")]

use std::{io, ptr};

use super::{AcquireError, Backend, Queue, Tag, queue::HostQueue};
use crate::{Bytes, Host, Space};

/// Anonymous pages of the operating system.
///
/// A growable region is one mapping without access; committing gives pages access, decommitting gives them back to the
/// system and takes the access away, so that a stale address faults instead of reading old bytes.
#[derive(Debug)]
pub struct HostBackend {
    granule: u64,
}

impl HostBackend {
    /// Pages of the system's own size.
    pub fn new() -> Self {
        // SAFETY: `sysconf` reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        HostBackend { granule: u64::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096) }
    }
}

impl Default for HostBackend {
    fn default() -> Self {
        HostBackend::new()
    }
}

fn pointer(addr: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(addr as usize)
}

fn failed(tag: Tag, operation: &'static str, bytes: u64) -> AcquireError {
    let reason = io::Error::last_os_error().to_string();
    AcquireError::System { name: tag.name, operation, bytes: Bytes::new(bytes), reason }
}

// SAFETY: `mmap` with a null hint returns a fresh mapping that overlaps no other; pages are zeroed by the system; the CPU
// can access what `mprotect` made accessible; `madvise`, `mprotect` and `munmap` are called with ranges inside it.
unsafe impl Backend for HostBackend {
    fn space(&self) -> &'static str {
        Host::NAME
    }

    fn granule(&self) -> Bytes {
        Bytes::new(self.granule)
    }

    fn open_queue(&self, _tag: Tag) -> Result<Box<dyn Queue>, AcquireError> {
        Ok(Box::new(HostQueue::synchronous()))
    }

    fn reserve(&self, tag: Tag, reserved: Bytes, committed: Bytes) -> Result<u64, AcquireError> {
        let length = usize::try_from(reserved.count()).map_err(|_| failed(tag, "reserving", reserved.count()))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the system's choice touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(failed(tag, "reserving", reserved.count()));
        }
        let base = base.expose_provenance() as u64;
        // SAFETY: the range is the start of the mapping made above.
        if let Err(error) = unsafe { self.commit(tag, base, Bytes::ZERO, committed) } {
            // SAFETY: nobody knows the mapping yet.
            unsafe { libc::munmap(pointer(base), length) };
            return Err(error);
        }
        Ok(base)
    }

    unsafe fn commit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        let more = to.beyond(from).count();
        if more == 0 {
            return Ok(());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: by the caller the range is inside a live mapping of `reserve`.
        match unsafe { libc::mprotect(pointer(base + from.count()), more as usize, access) } {
            0 => Ok(()),
            _ => Err(failed(tag, "committing", more)),
        }
    }

    unsafe fn decommit(&self, tag: Tag, base: u64, from: Bytes, to: Bytes) -> Result<(), AcquireError> {
        let less = to.beyond(from).count();
        let start = pointer(base + from.count());
        if less == 0 {
            return Ok(());
        }
        // SAFETY: by the caller the range is inside a live mapping of `reserve` and nothing uses it.
        let protected = unsafe { libc::mprotect(start, less as usize, libc::PROT_NONE) };
        // SAFETY: the same range; its pages go back to the system and are zero when they are committed again.
        match protected | unsafe { libc::madvise(start, less as usize, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(failed(tag, "decommitting", less)),
        }
    }

    unsafe fn release(&self, tag: Tag, base: u64, reserved: Bytes, _committed: Bytes) -> Result<(), AcquireError> {
        // SAFETY: by the caller the mapping is `reserve`'s own, whole, and unused.
        match unsafe { libc::munmap(pointer(base), reserved.count() as usize) } {
            0 => Ok(()),
            _ => Err(failed(tag, "releasing", reserved.count())),
        }
    }

    fn resident(&self, base: u64, reserved: Bytes) -> Option<Bytes> {
        // Asked in pieces: one byte of answer for each page.
        let mut pages = [0_u8; 4096];
        let (mut resident, piece) = (0, self.granule * pages.len() as u64);
        let mut at = 0;
        while at < reserved.count() {
            let bytes = piece.min(reserved.count() - at);
            // SAFETY: `mincore` reads no memory and writes one byte a page of the range, of which `pages` has room for all.
            // A range that is no longer mapped is an error.
            let answer = unsafe { libc::mincore(pointer(base + at), bytes as usize, pages.as_mut_ptr().cast()) };
            if answer != 0 {
                return None;
            }
            let asked = bytes.div_ceil(self.granule) as usize;
            resident += pages[..asked].iter().filter(|page| **page & 1 != 0).count() as u64;
            at += bytes;
        }
        Some(Bytes::new(resident * self.granule))
    }
}
