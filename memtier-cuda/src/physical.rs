//! The driver's calls for reserved addresses and physical memory.
#![expect(clippy::disallowed_methods, reason = "a backend: this is where memory comes from")]

use std::sync::Arc;

use cudarc::driver::sys;

use crate::{
    driver::{Context, check},
    error::DriverError,
    vmm::Vmm,
};

/// Physical memory of one device.
pub(crate) struct Physical(pub(crate) Arc<Context>);

impl Physical {
    fn properties(&self) -> sys::CUmemAllocationProp {
        // SAFETY: plain data of the driver's interface, for which zero means "none" in every field.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.location();
        properties
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.0.device() }
    }

    /// The smallest unit of a commit, in bytes.
    pub(crate) fn granule(&self) -> Result<u64, DriverError> {
        self.0.bind()?;
        let mut bytes = 0;
        let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: reads the properties, writes one integer.
        let result = unsafe { sys::cuMemGetAllocationGranularity(&mut bytes, &self.properties(), minimum) };
        check("cuMemGetAllocationGranularity", result)?;
        Ok(bytes as u64)
    }
}

// SAFETY: the driver's reservations do not overlap, and what is mapped and accessible stays so until it is unmapped.
unsafe impl Vmm for Physical {
    type Handle = sys::CUmemGenericAllocationHandle;
    type Error = DriverError;

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        self.0.bind()?;
        let mut base = 0;
        let reserved = self.0.acquire("cuMemAddressReserve", || {
            // SAFETY: an address of the driver's choice; nothing is mapped there.
            unsafe { sys::cuMemAddressReserve(&mut base, bytes as usize, 0, 0, 0) }
        });
        reserved.map(|()| base)
    }

    unsafe fn free(&self, base: u64, bytes: u64) -> Result<(), DriverError> {
        self.0.bind()?;
        // SAFETY: by the caller.
        check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(base, bytes as usize) })
    }

    fn create(&self, bytes: u64) -> Result<Self::Handle, DriverError> {
        self.0.bind()?;
        let mut handle = 0;
        let created = self.0.acquire("cuMemCreate", || {
            // SAFETY: reads the properties, writes a handle.
            unsafe { sys::cuMemCreate(&mut handle, bytes as usize, &self.properties(), 0) }
        });
        created.map(|()| handle)
    }

    unsafe fn release(&self, handle: Self::Handle) -> Result<(), DriverError> {
        self.0.bind()?;
        self.0.acquire("cuMemRelease", || {
            // SAFETY: by the caller.
            unsafe { sys::cuMemRelease(handle) }
        })
    }

    unsafe fn map(&self, at: u64, bytes: u64, handle: Self::Handle) -> Result<(), DriverError> {
        self.0.bind()?;
        self.0.acquire("cuMemMap", || {
            // SAFETY: by the caller.
            unsafe { sys::cuMemMap(at, bytes as usize, 0, handle, 0) }
        })
    }

    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<(), DriverError> {
        self.0.bind()?;
        self.0.acquire("cuMemUnmap", || {
            // SAFETY: by the caller.
            unsafe { sys::cuMemUnmap(at, bytes as usize) }
        })
    }

    unsafe fn give_access(&self, at: u64, bytes: u64) -> Result<(), DriverError> {
        self.0.bind()?;
        let access = sys::CUmemAccessDesc {
            location: self.location(),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        self.0.acquire("cuMemSetAccess", || {
            // SAFETY: by the caller the range is mapped; reads one descriptor.
            unsafe { sys::cuMemSetAccess(at, bytes as usize, &access, 1) }
        })
    }
}
