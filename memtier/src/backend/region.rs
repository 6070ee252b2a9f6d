//! One reservation, released when its last owner drops.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use super::{AcquireError, DeviceCore, PhaseName, Tag};
use crate::Bytes;

/// The phase of an engine, shared with its regions so that the books know when something was acquired.
#[derive(Debug)]
pub(crate) struct PhaseCell(AtomicU8);

impl PhaseCell {
    pub(crate) fn new() -> Self {
        PhaseCell(AtomicU8::new(PhaseName::Loading as u8))
    }

    pub(crate) fn set(&self, phase: PhaseName) {
        self.0.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn get(&self) -> PhaseName {
        match self.0.load(Ordering::Acquire) {
            0 => PhaseName::Loading,
            1 => PhaseName::Planning,
            _ => PhaseName::Serving,
        }
    }
}

/// One reservation. Arenas, slabs and scratch stacks share it with their parts, so a part never outlives its memory.
pub(crate) struct Region {
    device: Arc<DeviceCore>,
    phase: Arc<PhaseCell>,
    name: &'static str,
    base: u64,
    reserved: Bytes,
    /// Rounded to the granule. Only grows and shrinks under `resize`.
    committed: AtomicU64,
    resize: Mutex<()>,
}

impl Region {
    /// Reserves `reserved` bytes and commits the first `committed` of them.
    pub(crate) fn reserve(
        device: &Arc<DeviceCore>,
        phase: &Arc<PhaseCell>,
        name: &'static str,
        reserved: Bytes,
        committed: Bytes,
    ) -> Result<Arc<Self>, AcquireError> {
        let (reserved, committed) = (device.rounded(reserved.max(Bytes::new(1))), device.rounded(committed));
        let base = device.reserve(tag(name, phase), reserved, committed)?;
        Ok(Arc::new(Region {
            device: device.clone(),
            phase: phase.clone(),
            name,
            base,
            reserved,
            committed: AtomicU64::new(committed.count()),
            resize: Mutex::default(),
        }))
    }

    fn tag(&self) -> Tag {
        tag(self.name, &self.phase)
    }

    /// Commits memory up to `to` bytes from the start; what is there already stays. `planned`: a plan paid for it.
    pub(crate) fn grow(&self, to: Bytes, planned: bool) -> Result<(), AcquireError> {
        let _one_at_a_time = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Bytes::new(self.committed.load(Ordering::Acquire));
        let to = self.device.rounded(to).min(self.reserved);
        if to > from {
            // SAFETY: the base is this region's own, not released before `self` drops, and `from..to` is reserved and not
            // committed: `committed` is only changed here and in `shrink`, under the lock.
            unsafe { self.device.commit(self.tag(), self.base, from, to, planned)? };
            self.committed.store(to.count(), Ordering::Release);
        }
        Ok(())
    }

    /// Decommits memory from `to` bytes on.
    ///
    /// # Safety
    /// Nothing reads or writes past `to` until it is committed again.
    pub(crate) unsafe fn shrink(&self, to: Bytes) -> Result<(), AcquireError> {
        let _one_at_a_time = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Bytes::new(self.committed.load(Ordering::Acquire));
        let to = self.device.rounded(to);
        if to < from {
            // SAFETY: the range is committed, and by the caller unused.
            unsafe { self.device.decommit(self.tag(), self.base, to, from)? };
            self.committed.store(to.count(), Ordering::Release);
        }
        Ok(())
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    #[cfg(test)]
    pub(crate) fn committed(&self) -> Bytes {
        Bytes::new(self.committed.load(Ordering::Acquire))
    }

    pub(crate) fn device(&self) -> &Arc<DeviceCore> {
        &self.device
    }
}

/// The name of page-locked regions, by which the books know them.
pub(crate) const PINNED: &str = "pinned buffer";

fn tag(name: &'static str, phase: &PhaseCell) -> Tag {
    Tag { name, phase: phase.get(), pinned: name == PINNED }
}

impl Drop for Region {
    fn drop(&mut self) {
        let committed = Bytes::new(*self.committed.get_mut());
        // SAFETY: the last owner is gone, so no span, scratch stack or graph can reach the memory; released once.
        unsafe { self.device.release(self.tag(), self.base, self.reserved, committed) }
    }
}
