//! Reserved addresses, physical memory, and mapping one to the other.

use std::ffi::{c_int, c_uint, c_ulonglong};

use cudarc::driver::sys::{self, CUresult as R};

use super::{
    calls::{in_context, put},
    error::{Outcome, ensure},
    pages::Access,
    settings::GRANULE,
};

/// Whether a location is this device.
fn here(kind: c_uint, id: c_int) -> Outcome {
    let device = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
    ensure(kind == device, R::CUDA_ERROR_INVALID_VALUE)?;
    ensure(id == 0, R::CUDA_ERROR_INVALID_DEVICE)
}

/// What is asked for: pinned memory of this device, not to be exported.
///
/// # Safety
/// `properties` is null, or valid for a read.
unsafe fn properties(of: *const sys::CUmemAllocationProp) -> Outcome {
    ensure(!of.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
    // As words: what a caller wrote there may be no variant of ours.
    // SAFETY: by the caller; the structure begins with three or more words of this size.
    let [kind, handles, location, id] = unsafe { of.cast::<[u32; 4]>().read() };
    ensure(kind == sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32, R::CUDA_ERROR_INVALID_VALUE)?;
    ensure(handles == 0, R::CUDA_ERROR_NOT_SUPPORTED)?;
    here(location, id as c_int)
}

/// # Safety
/// The pointers are null, or valid for a write and a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    of: *const sys::CUmemAllocationProp,
    option: c_uint,
) -> u32 {
    in_context("cuMemGetAllocationGranularity", |_| {
        ensure(option <= 1, R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller.
        unsafe {
            properties(of)?;
            put(bytes, GRANULE as usize)
        }
    })
}

/// # Safety
/// `at` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    at: *mut u64,
    bytes: usize,
    align: usize,
    _wish: u64,
    flags: c_ulonglong,
) -> u32 {
    in_context("cuMemAddressReserve", |inside| {
        ensure(!at.is_null() && flags == 0, R::CUDA_ERROR_INVALID_VALUE)?;
        let base = inside.books.reserve(bytes as u64, align as u64)?;
        // SAFETY: by the caller.
        unsafe { put(at, base) }
    })
}

/// # Safety
/// Nothing uses the addresses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressFree(at: u64, bytes: usize) -> u32 {
    in_context("cuMemAddressFree", |inside| {
        inside.books.unreserve(at, bytes as u64)?;
        inside.sweep();
        Ok(())
    })
}

/// # Safety
/// The pointers are null, or valid for a write and a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    of: *const sys::CUmemAllocationProp,
    flags: c_ulonglong,
) -> u32 {
    in_context("cuMemCreate", |inside| {
        ensure(!handle.is_null() && flags == 0, R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller.
        unsafe { properties(of) }?;
        let block = inside.books.create(bytes as u64)?;
        // SAFETY: by the caller.
        unsafe { put(handle, block) }
    })
}

/// # Safety
/// The handle is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRelease(handle: u64) -> u32 {
    in_context("cuMemRelease", |inside| {
        inside.books.release(handle)?;
        inside.sweep();
        Ok(())
    })
}

/// # Safety
/// None is needed: what cannot be mapped there is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) -> u32 {
    in_context("cuMemMap", |inside| {
        ensure(offset == 0 && flags == 0, R::CUDA_ERROR_INVALID_VALUE)?;
        inside.books.map(at, bytes as u64, handle)
    })
}

/// # Safety
/// Nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemUnmap(at: u64, bytes: usize) -> u32 {
    in_context("cuMemUnmap", |inside| {
        let (state, driver) = inside.parts();
        state.books.unmap(&driver.space, at, bytes as u64)?;
        inside.sweep();
        Ok(())
    })
}

/// # Safety
/// `descriptors` is null, or valid for reads of `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(
    at: u64,
    bytes: usize,
    descriptors: *const sys::CUmemAccessDesc,
    count: usize,
) -> u32 {
    in_context("cuMemSetAccess", |inside| {
        ensure(!descriptors.is_null() && count == 1, R::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the caller; the structure is three words of this size.
        let [location, id, flags] = unsafe { descriptors.cast::<[u32; 3]>().read() };
        here(location, id as c_int)?;
        let access = match flags {
            0 => Access::None,
            1 => Access::Read,
            3 => Access::ReadWrite,
            _ => return Err(R::CUDA_ERROR_INVALID_VALUE.into()),
        };
        let (state, driver) = inside.parts();
        state.books.set_access(&driver.space, at, bytes as u64, access)
    })
}
