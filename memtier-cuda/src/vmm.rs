//! Reserved addresses and the physical memory behind them.
//!
//! A commit is made of chunks: one physical allocation each, as large as the commit up to a limit. Chunks of one commit are
//! given access in one call. What fails in the middle is undone: nothing more is mapped than before.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The driver's own calls, in the order in which they are used. Sizes and addresses are multiples of the granule.
///
/// # Safety
/// `reserve` returns addresses that overlap no others; a mapped and accessible range can be used until it is unmapped.
pub(crate) unsafe trait Vmm: Send + Sync + 'static {
    /// One piece of physical memory.
    type Handle: Copy + Send + 'static;
    /// Why a call failed.
    type Error: fmt::Display;

    fn reserve(&self, bytes: u64) -> Result<u64, Self::Error>;
    /// # Safety
    /// `base` is a reservation of `bytes`, with nothing mapped.
    unsafe fn free(&self, base: u64, bytes: u64) -> Result<(), Self::Error>;
    fn create(&self, bytes: u64) -> Result<Self::Handle, Self::Error>;
    /// # Safety
    /// The handle was created, is mapped nowhere, and is released once.
    unsafe fn release(&self, handle: Self::Handle) -> Result<(), Self::Error>;
    /// # Safety
    /// The range is reserved, has nothing mapped, and is as long as the handle.
    unsafe fn map(&self, at: u64, bytes: u64, handle: Self::Handle) -> Result<(), Self::Error>;
    /// # Safety
    /// The range is what one `map` mapped, and nothing uses it.
    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<(), Self::Error>;
    /// # Safety
    /// The whole range is mapped.
    unsafe fn give_access(&self, at: u64, bytes: u64) -> Result<(), Self::Error>;
}

/// What went wrong: the operation, and the driver's own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VmmError {
    pub(crate) operation: &'static str,
    pub(crate) reason: String,
}

/// What takes memory, and fails for want of it.
pub(crate) const ALLOCATING: &str = "allocating physical memory";

fn because<E: fmt::Display>(operation: &'static str) -> impl Fn(E) -> VmmError {
    move |error| VmmError { operation, reason: error.to_string() }
}

/// Reservations with their chunks.
pub(crate) struct Regions<V: Vmm> {
    vmm: V,
    /// The most bytes of one chunk.
    chunk: u64,
    regions: Mutex<HashMap<u64, Arc<Mutex<Region<V::Handle>>>>>,
}

struct Region<H> {
    reserved: u64,
    /// In the order of addresses, without overlap.
    chunks: Vec<Chunk<H>>,
    /// Pieces that an earlier failure could not give back. Tried again before the next commit.
    stranded: Vec<Chunk<H>>,
}

#[derive(Clone, Copy)]
struct Chunk<H> {
    from: u64,
    bytes: u64,
    handle: H,
    mapped: bool,
}

impl<V: Vmm> Regions<V> {
    pub(crate) fn new(vmm: V, chunk: u64) -> Self {
        Regions { vmm, chunk, regions: Mutex::default() }
    }

    /// Reserves addresses and commits the first bytes of them.
    pub(crate) fn reserve(&self, reserved: u64, committed: u64) -> Result<u64, VmmError> {
        let base = self.vmm.reserve(reserved).map_err(because("reserving addresses"))?;
        let region = Region { reserved, chunks: Vec::new(), stranded: Vec::new() };
        lock(&self.regions).insert(base, Arc::new(Mutex::new(region)));
        // SAFETY: reserved a moment ago, and known to nobody.
        match unsafe { self.commit(base, 0, committed) } {
            Ok(()) => Ok(base),
            Err(error) => {
                // SAFETY: nobody knows it yet.
                let _ = unsafe { self.release(base) };
                Err(error)
            }
        }
    }

    fn region(&self, base: u64) -> Result<Arc<Mutex<Region<V::Handle>>>, VmmError> {
        let unknown = || VmmError { operation: "finding a region", reason: format!("{base:#x} was not reserved here") };
        lock(&self.regions).get(&base).cloned().ok_or_else(unknown)
    }

    /// Commits `from..to`.
    ///
    /// # Safety
    /// The range is inside the reservation and not committed.
    pub(crate) unsafe fn commit(&self, base: u64, from: u64, to: u64) -> Result<(), VmmError> {
        if from >= to {
            return Ok(());
        }
        let region = self.region(base)?;
        let mut region = lock(&region);
        region.stranded.retain_mut(|chunk| self.give_back(base, chunk).is_err());
        if let Some(chunk) = region.stranded.first() {
            let reason = format!("{} bytes at {:#x} could not be unmapped before", chunk.bytes, base + chunk.from);
            return Err(VmmError { operation: "committing", reason });
        }
        let mut chunks = Vec::with_capacity((to - from).div_ceil(self.chunk) as usize);
        // SAFETY: by the caller.
        match unsafe { self.map_all(base, from, to, &mut chunks) } {
            Ok(()) => {
                let place = region.chunks.partition_point(|chunk| chunk.from < from);
                region.chunks.splice(place..place, chunks);
                Ok(())
            }
            Err(error) => {
                // The latest first, as they came.
                while let Some(mut chunk) = chunks.pop() {
                    if self.give_back(base, &mut chunk).is_err() {
                        region.stranded.push(chunk);
                    }
                }
                Err(error)
            }
        }
    }

    /// Maps `from..to`; whatever was created or mapped is in `chunks`, also when it fails.
    ///
    /// # Safety
    /// As `commit`.
    unsafe fn map_all(
        &self,
        base: u64,
        from: u64,
        to: u64,
        chunks: &mut Vec<Chunk<V::Handle>>,
    ) -> Result<(), VmmError> {
        let mut at = from;
        while at < to {
            let bytes = self.chunk.min(to - at);
            let handle = self.vmm.create(bytes).map_err(because(ALLOCATING))?;
            chunks.push(Chunk { from: at, bytes, handle, mapped: false });
            // SAFETY: by the caller nothing is mapped in the range; the handle is as long.
            unsafe { self.vmm.map(base + at, bytes, handle) }.map_err(because("mapping"))?;
            if let Some(chunk) = chunks.last_mut() {
                chunk.mapped = true;
            }
            at += bytes;
        }
        // SAFETY: everything from `from` to `to` was mapped above.
        unsafe { self.vmm.give_access(base + from, to - from) }.map_err(because("giving access"))
    }

    /// Unmaps and releases a chunk that nothing uses. After an error, `chunk` says what is left of it.
    fn give_back(&self, base: u64, chunk: &mut Chunk<V::Handle>) -> Result<(), VmmError> {
        if chunk.mapped {
            // SAFETY: mapped by one call, and by the callers of this function unused.
            unsafe { self.vmm.unmap(base + chunk.from, chunk.bytes) }.map_err(because("unmapping"))?;
            chunk.mapped = false;
        }
        // SAFETY: created once, mapped nowhere now; the callers forget it when this succeeds.
        unsafe { self.vmm.release(chunk.handle) }.map_err(because("releasing physical memory"))
    }

    /// Gives the memory of `from..to` back: whole chunks, as they were committed.
    ///
    /// # Safety
    /// The range is committed, and nothing uses it.
    pub(crate) unsafe fn decommit(&self, base: u64, from: u64, to: u64) -> Result<(), VmmError> {
        if from >= to {
            return Ok(());
        }
        let region = self.region(base)?;
        let mut region = lock(&region);
        let first = region.chunks.partition_point(|chunk| chunk.from < from);
        let last = region.chunks.partition_point(|chunk| chunk.from + chunk.bytes <= to);
        let whole: u64 = region.chunks.get(first..last).unwrap_or_default().iter().map(|chunk| chunk.bytes).sum();
        if whole != to - from {
            let reason = format!(
                "{from:#x}..{to:#x} does not begin and end where commits did, and a physical allocation cannot be split: \
                 give back whole commits, the latest first"
            );
            return Err(VmmError { operation: "decommitting", reason });
        }
        for index in first..last {
            let Chunk { from: at, bytes, .. } = region.chunks[index];
            // SAFETY: mapped by one call, and by the caller unused.
            if let Err(error) = unsafe { self.vmm.unmap(base + at, bytes) } {
                // SAFETY: these were unmapped by this loop, and their handles are still held.
                return Err(unsafe { self.restore(base, &region.chunks[first..index], because("unmapping")(error)) });
            }
        }
        let mut gone: Vec<_> = region.chunks.drain(first..last).collect();
        for chunk in &mut gone {
            chunk.mapped = false;
            if self.give_back(base, chunk).is_err() {
                // Nothing is mapped there any more, so it counts as given back; the driver is asked again later.
                region.stranded.push(*chunk);
            }
        }
        Ok(())
    }

    /// Maps chunks that were unmapped for nothing again, with what they held.
    ///
    /// # Safety
    /// They are chunks of this region that were just unmapped.
    unsafe fn restore(&self, base: u64, chunks: &[Chunk<V::Handle>], mut error: VmmError) -> VmmError {
        for chunk in chunks {
            // SAFETY: by the caller the place is free and the handle its own.
            let mapped = unsafe { self.vmm.map(base + chunk.from, chunk.bytes, chunk.handle) };
            // SAFETY: mapped by the line above, or the result is not looked at.
            let result = mapped.and_then(|()| unsafe { self.vmm.give_access(base + chunk.from, chunk.bytes) });
            if let Err(again) = result {
                error.reason += &format!("; and what was unmapped before could not be mapped again: {again}");
            }
        }
        error
    }

    /// Physical memory behind a reservation, in bytes, with what could not be given back yet.
    pub(crate) fn resident(&self, base: u64) -> Option<u64> {
        let region = self.region(base).ok()?;
        let region = lock(&region);
        Some(region.chunks.iter().chain(&region.stranded).map(|chunk| chunk.bytes).sum())
    }

    /// Gives a reservation back with everything in it.
    ///
    /// # Safety
    /// Nothing uses it any more, and it is released once.
    pub(crate) unsafe fn release(&self, base: u64) -> Result<(), VmmError> {
        let region = self.region(base)?;
        let mut region = lock(&region);
        let Region { reserved, chunks, stranded } = &mut *region;
        let mut failure = Ok(());
        for list in [chunks, stranded] {
            list.retain_mut(|chunk| match self.give_back(base, chunk) {
                Ok(()) => false,
                Err(error) => {
                    failure = Err(error);
                    true
                }
            });
        }
        failure?;
        // SAFETY: nothing is mapped in it any more.
        unsafe { self.vmm.free(base, *reserved) }.map_err(because("freeing addresses"))?;
        lock(&self.regions).remove(&base);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "vmm_tests.rs"]
mod tests;
