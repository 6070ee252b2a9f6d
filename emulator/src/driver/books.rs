//! Who has what of the device's memory: allocations, reservations, physical memory and where it is mapped.

use std::collections::BTreeMap;

use cudarc::driver::sys::CUresult as R;

use super::{
    error::{Failure, Outcome, ensure},
    pages::{self, Access, Pages},
    settings::GRANULE,
    space::{Kind, Range, Space},
};

/// Memory that one call took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) bytes: u64,
    /// What is mapped for it; none for memory of the process that was registered.
    pages: u64,
    /// What it takes of the device's memory.
    charged: u64,
    kind: Kind,
}

/// Physical memory.
#[derive(Clone, Copy, Debug)]
struct Block {
    offset: u64,
    bytes: u64,
    maps: u32,
    released: bool,
}

/// A place where physical memory is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    block: u64,
}

/// All of it.
pub(super) struct Books {
    total: u64,
    taken: u64,
    pages: Pages,
    poison: bool,
    allocations: BTreeMap<u64, Allocation>,
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    blocks: BTreeMap<u64, Block>,
    /// Ranges that were unmapped or freed while something ran that may have looked at them just before, and their bytes. Given
    /// back to the system when nothing runs: `true` where the addresses go back, too.
    late: Vec<(u64, u64, bool)>,
    /// Pieces of the file that were released while something ran.
    late_blocks: Vec<(u64, u64)>,
    next: u64,
}

fn system(_: std::io::Error) -> Failure {
    R::CUDA_ERROR_OPERATING_SYSTEM.into()
}

impl Books {
    pub(super) fn open(total: u64, poison: bool) -> std::io::Result<Self> {
        Ok(Books {
            total,
            taken: 0,
            pages: Pages::open()?,
            poison,
            allocations: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            blocks: BTreeMap::new(),
            late: Vec::new(),
            late_blocks: Vec::new(),
            next: 0x5000_0000,
        })
    }

    /// Free and total bytes.
    pub(super) fn memory(&self) -> (u64, u64) {
        (self.total.saturating_sub(self.taken), self.total)
    }

    /// Takes device memory that is nobody's to see: a context, code.
    pub(super) fn charge(&mut self, bytes: u64) -> Outcome {
        ensure(bytes <= self.memory().0, R::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.taken += bytes;
        Ok(())
    }

    pub(super) fn refund(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_sub(bytes);
    }

    /// Device memory, of which it takes whole `unit`s, or page-locked host memory.
    pub(super) fn allocate(&mut self, space: &Space, bytes: u64, kind: Kind, unit: u64) -> Outcome<u64> {
        ensure(bytes > 0, R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(bytes < 1 << 46, R::CUDA_ERROR_OUT_OF_MEMORY)?;
        let charged = if kind == Kind::Device { bytes.next_multiple_of(unit) } else { 0 };
        self.charge(charged)?;
        let pages = bytes.next_multiple_of(4096);
        let at = pages::allocate(pages).map_err(|_| {
            self.refund(charged);
            Failure::from(R::CUDA_ERROR_OUT_OF_MEMORY)
        })?;
        if kind == Kind::Device && self.poison {
            pages::fill(at, bytes);
        }
        self.allocations.insert(at, Allocation { bytes, pages, charged, kind });
        // To the byte: a kernel that reads past the end is caught where a device would read what lies behind it.
        space.add(Range { start: at, end: at + bytes, access: Access::ReadWrite, kind });
        Ok(at)
    }

    /// Makes memory of the process reachable.
    pub(super) fn register(&mut self, space: &Space, at: u64, bytes: u64) -> Outcome {
        let end = at.checked_add(bytes).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(at > 0 && bytes > 0, R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!space.touches(at, end, Kind::Device), R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!space.touches(at, end, Kind::Host), R::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)?;
        self.allocations.insert(at, Allocation { bytes, pages: 0, charged: 0, kind: Kind::Host });
        space.add(Range { start: at, end, access: Access::ReadWrite, kind: Kind::Host });
        Ok(())
    }

    /// What was allocated or registered at exactly this address.
    pub(super) fn allocation(&self, at: u64, kind: Kind, registered: bool) -> Option<Allocation> {
        self.allocations.get(&at).copied().filter(|found| found.kind == kind && (found.pages == 0) == registered)
    }

    /// Gives an allocation back, or makes registered memory unreachable. Nothing runs that uses it: its callers waited.
    pub(super) fn forget(&mut self, space: &Space, at: u64) -> Outcome {
        let Some(found) = self.allocations.remove(&at) else { return Err(R::CUDA_ERROR_INVALID_VALUE.into()) };
        space.remove(at, at + found.bytes);
        self.refund(found.charged);
        if found.pages > 0 {
            self.late.push((at, found.pages, true));
        }
        Ok(())
    }

    /// Reserves addresses.
    pub(super) fn reserve(&mut self, bytes: u64, align: u64) -> Outcome<u64> {
        let whole = bytes > 0 && bytes.is_multiple_of(GRANULE) && (align == 0 || align.is_power_of_two());
        ensure(whole, R::CUDA_ERROR_INVALID_VALUE)?;
        let at = pages::reserve(bytes, align.max(GRANULE)).map_err(|_| R::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.reservations.insert(at, bytes);
        Ok(at)
    }

    /// Gives reserved addresses back.
    pub(super) fn unreserve(&mut self, at: u64, bytes: u64) -> Outcome {
        let empty = self.mappings.range(at..at.saturating_add(bytes)).next().is_none();
        ensure(self.reservations.get(&at) == Some(&bytes) && empty, R::CUDA_ERROR_INVALID_VALUE)?;
        self.reservations.remove(&at);
        self.late.retain(|(start, _, whole)| *whole || *start < at || *start >= at + bytes);
        self.late.push((at, bytes, true));
        Ok(())
    }

    /// Takes physical memory; gives its handle.
    pub(super) fn create(&mut self, bytes: u64) -> Outcome<u64> {
        ensure(bytes > 0 && bytes.is_multiple_of(GRANULE), R::CUDA_ERROR_INVALID_VALUE)?;
        self.charge(bytes)?;
        let offset = self.pages.create(bytes).map_err(|error| {
            self.refund(bytes);
            system(error)
        })?;
        if self.poison {
            self.pages.fill(offset, bytes).map_err(system)?;
        }
        self.next += 1;
        self.blocks.insert(self.next, Block { offset, bytes, maps: 0, released: false });
        Ok(self.next)
    }

    /// Releases a handle; its memory goes when it is mapped nowhere.
    pub(super) fn release(&mut self, handle: u64) -> Outcome {
        let block = self.blocks.get_mut(&handle).filter(|block| !block.released).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        block.released = true;
        self.settle(handle);
        Ok(())
    }

    fn settle(&mut self, handle: u64) {
        let gone = self.blocks.get(&handle).is_some_and(|block| block.released && block.maps == 0);
        if let Some(block) = gone.then(|| self.blocks.remove(&handle)).flatten() {
            self.refund(block.bytes);
            self.late_blocks.push((block.offset, block.bytes));
        }
    }

    /// Maps all of a handle, without access.
    pub(super) fn map(&mut self, at: u64, bytes: u64, handle: u64) -> Outcome {
        let block = self.blocks.get(&handle).filter(|block| !block.released).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        let end = at.checked_add(bytes).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(bytes == block.bytes && at.is_multiple_of(GRANULE), R::CUDA_ERROR_INVALID_VALUE)?;
        let inside = self.reservations.range(..=at).next_back().is_some_and(|(start, long)| end <= start + long);
        let before = self.mappings.range(..end).next_back().is_some_and(|(start, mapped)| start + mapped.bytes > at);
        ensure(inside && !before, R::CUDA_ERROR_INVALID_VALUE)?;
        let offset = block.offset;
        // SAFETY: inside of one reservation. What was mapped there left the table of what can be reached.
        unsafe { self.pages.map(at, bytes, offset, Access::None) }.map_err(|_| R::CUDA_ERROR_MAP_FAILED)?;
        self.late.retain(|(start, _, whole)| *whole || *start < at || *start >= end);
        if let Some(block) = self.blocks.get_mut(&handle) {
            block.maps += 1;
        }
        self.mappings.insert(at, Mapping { bytes, block: handle });
        Ok(())
    }

    /// The mappings that together are exactly `at..at + bytes`.
    fn whole(&self, at: u64, bytes: u64) -> Outcome<Vec<(u64, Mapping)>> {
        let end = at.checked_add(bytes).filter(|end| *end > at).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
        let list: Vec<_> = self.mappings.range(at..end).map(|(start, mapping)| (*start, *mapping)).collect();
        let mut next = at;
        for (start, mapping) in &list {
            ensure(*start == next, R::CUDA_ERROR_INVALID_VALUE)?;
            next += mapping.bytes;
        }
        ensure(next == end, R::CUDA_ERROR_INVALID_VALUE)?;
        Ok(list)
    }

    /// Gives access to whole mappings, or takes it.
    pub(super) fn set_access(&mut self, space: &Space, at: u64, bytes: u64, access: Access) -> Outcome {
        for (start, mapping) in self.whole(at, bytes)? {
            space.remove(start, start + mapping.bytes);
            // Memory of this process stays readable and writable behind the table, so that what runs and looked a moment ago does
            // not end the process.
            // SAFETY: inside of one reservation.
            unsafe { pages::protect(start, mapping.bytes, Access::ReadWrite) }.map_err(system)?;
            if access != Access::None {
                space.add(Range { start, end: start + mapping.bytes, access, kind: Kind::Device });
            }
        }
        Ok(())
    }

    /// Unmaps whole mappings.
    pub(super) fn unmap(&mut self, space: &Space, at: u64, bytes: u64) -> Outcome {
        for (start, mapping) in self.whole(at, bytes)? {
            space.remove(start, start + mapping.bytes);
            self.mappings.remove(&start);
            self.late.push((start, mapping.bytes, false));
            if let Some(block) = self.blocks.get_mut(&mapping.block) {
                block.maps -= 1;
            }
            self.settle(mapping.block);
        }
        Ok(())
    }

    /// Gives to the system what was left for when nothing runs.
    pub(super) fn sweep(&mut self) {
        for (at, bytes, whole) in self.late.drain(..) {
            // SAFETY: unreachable for the device, and nothing runs that could have looked before. Whole: as it was given.
            let result = unsafe { if whole { pages::free(at, bytes) } else { pages::empty(at, bytes) } };
            // Nothing is lost but memory of the machine.
            drop(result);
        }
        for (offset, bytes) in self.late_blocks.drain(..) {
            drop(self.pages.discard(offset, bytes));
        }
    }

    /// Gives everything back: the context is gone, and nothing runs.
    pub(super) fn clear(&mut self, space: &Space) {
        space.clear();
        let blocks = std::mem::take(&mut self.blocks).into_values().map(|block| (block.offset, block.bytes));
        self.late_blocks.extend(blocks);
        let allocations = std::mem::take(&mut self.allocations).into_iter();
        self.late.extend(allocations.filter(|(_, had)| had.pages > 0).map(|(at, had)| (at, had.pages, true)));
        self.late.retain(|(_, _, whole)| *whole);
        self.late.extend(std::mem::take(&mut self.reservations).into_iter().map(|(at, bytes)| (at, bytes, true)));
        self.mappings.clear();
        self.taken = 0;
        self.sweep();
    }
}
