//! The operating system's calls behind device memory. A device address is an address of this process; physical memory is pieces of one
//! file in memory, so that it can be mapped, unmapped and mapped again elsewhere with what it holds.
#![expect(clippy::disallowed_methods, reason = "a device: this is where memory comes from")]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::FileExt,
    },
    ptr,
    sync::{Mutex, PoisonError},
};

/// What a kernel or a copy may do with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    None,
    Read,
    ReadWrite,
}

impl Access {
    fn protection(self) -> i32 {
        match self {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// The file behind device memory. Offsets are handed out once: a file has more of them than a process takes.
pub(super) struct Pages {
    file: File,
    next: Mutex<u64>,
}

fn result(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn address(of: u64) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(of as usize)
}

/// A new mapping of `bytes` bytes of nothing.
fn anonymous(bytes: u64, protection: i32) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: at an address of the system's choice: nothing that is there changes.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.expose_provenance() as u64) }
}

impl Pages {
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: a name that ends with zero; a new file, owned by nobody else.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"emulated device memory".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
        Ok(Pages { file, next: Mutex::new(0) })
    }

    /// Physical memory: where in the file. It takes memory of the machine as it is touched.
    pub(super) fn create(&self, bytes: u64) -> io::Result<u64> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.set_len(*next + bytes)?;
        let offset = *next;
        *next += bytes;
        Ok(offset)
    }

    /// Fills a fresh piece, see [`fill`].
    pub(super) fn fill(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let pattern = vec![PATTERN; 1 << 20];
        let starts = (offset..offset + bytes).step_by(pattern.len());
        let mut pieces = starts.map(|at| (at, (offset + bytes - at).min(1 << 20) as usize));
        pieces.try_for_each(|(at, length)| self.file.write_all_at(&pattern[..length], at))
    }

    /// Gives a piece that is mapped nowhere back to the machine.
    pub(super) fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a file of ours.
        result(unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, bytes as i64) })
    }

    /// Maps a piece of the file at an address that [`reserve`] gave, over whatever is there.
    ///
    /// # Safety
    /// The range is inside one reservation, and nobody dereferences what was mapped there before without a check that comes later.
    pub(super) unsafe fn map(&self, at: u64, bytes: u64, offset: u64, access: Access) -> io::Result<()> {
        let (flags, file) = (libc::MAP_SHARED | libc::MAP_FIXED, self.file.as_raw_fd());
        // SAFETY: by the caller the addresses are ours.
        let got = unsafe { libc::mmap(address(at), bytes as usize, access.protection(), flags, file, offset as i64) };
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Addresses with nothing behind them, at a multiple of `align`, which is a power of two and a multiple of a page.
pub(super) fn reserve(bytes: u64, align: u64) -> io::Result<u64> {
    let whole = bytes.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
    let start = anonymous(whole, libc::PROT_NONE)?;
    let at = start.next_multiple_of(align);
    // The rest in front and behind goes back.
    for (from, to) in [(start, at), (at + bytes, start + whole)] {
        if from < to {
            // SAFETY: pages of the mapping above that nobody knows.
            result(unsafe { libc::munmap(address(from), (to - from) as usize) })?;
        }
    }
    Ok(at)
}

/// Memory of its own.
pub(super) fn allocate(bytes: u64) -> io::Result<u64> {
    anonymous(bytes, libc::PROT_READ | libc::PROT_WRITE)
}

/// What fresh memory is filled with where it is asked for: a NaN of every format.
const PATTERN: u8 = 0xff;

/// Fills what [`allocate`] just gave, so that nothing gets by with the zeros that it happens to find.
pub(super) fn fill(at: u64, bytes: u64) {
    // SAFETY: the caller has just taken it, and nobody knows it yet.
    unsafe { address(at).cast::<u8>().write_bytes(PATTERN, bytes as usize) };
}

/// Gives addresses back, with what is behind them.
///
/// # Safety
/// They are what [`reserve`] or [`allocate`] gave, and nobody uses them.
pub(super) unsafe fn free(at: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: by the caller.
    result(unsafe { libc::munmap(address(at), bytes as usize) })
}

/// Changes what can be done with a range that is mapped.
///
/// # Safety
/// The range is inside one reservation, and who loses access to it does not use it.
pub(super) unsafe fn protect(at: u64, bytes: u64, access: Access) -> io::Result<()> {
    // SAFETY: by the caller.
    result(unsafe { libc::mprotect(address(at), bytes as usize, access.protection()) })
}

/// Makes a range of a reservation empty again.
///
/// # Safety
/// The range is inside one reservation, and nobody uses it.
pub(super) unsafe fn empty(at: u64, bytes: u64) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: by the caller the addresses are ours.
    let got = unsafe { libc::mmap(address(at), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_piece_holds_is_there_wherever_it_is_mapped_and_gone_when_it_is_discarded() {
        let pages = Pages::open().unwrap();
        let (bytes, align) = (2u64 << 20, 2u64 << 20);
        let base = reserve(4 * bytes, align).unwrap();
        assert_eq!(base % align, 0);
        let piece = pages.create(bytes).unwrap();
        // SAFETY: inside of the reservation, which only this test uses.
        unsafe {
            pages.map(base + bytes, bytes, piece, Access::ReadWrite).unwrap();
            address(base + bytes).cast::<u64>().write(77);
            empty(base + bytes, bytes).unwrap();
            pages.map(base + 3 * bytes, bytes, piece, Access::Read).unwrap();
            assert_eq!(address(base + 3 * bytes).cast::<u64>().read(), 77);
            empty(base + 3 * bytes, bytes).unwrap();
            pages.discard(piece, bytes).unwrap();
            pages.map(base, bytes, piece, Access::ReadWrite).unwrap();
            assert_eq!(address(base).cast::<u64>().read(), 0);
            free(base, 4 * bytes).unwrap();
        }
    }
}
