//! Memory in one call: of the device, and page-locked memory of the host.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::CUresult as R;

use super::{
    calls::{Inside, in_context, put},
    error::{Outcome, ensure},
    settings::GRANULE,
    space::Kind,
};

/// # Safety
/// The pointers are null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    in_context("cuMemGetInfo", |inside| {
        let (now, all) = inside.books.memory();
        // SAFETY: by the caller.
        unsafe {
            put(free, now as usize)?;
            put(total, all as usize)
        }
    })
}

/// Takes memory; a capture forbids it.
fn take(inside: &mut Inside, bytes: usize, kind: Kind) -> Outcome<u64> {
    inside.unless_capturing()?;
    let (state, driver) = inside.parts();
    state.books.allocate(&driver.space, bytes as u64, kind, GRANULE)
}

/// Gives memory back when what was queued is done, as the driver does.
fn give(inside: &mut Inside, at: u64, kind: Kind, registered: bool, otherwise: R) -> Outcome {
    inside.unless_capturing()?;
    ensure(inside.books.allocation(at, kind, registered).is_some(), otherwise)?;
    inside.drain_all();
    inside.alive()?;
    let (state, driver) = inside.parts();
    state.books.forget(&driver.space, at)?;
    inside.sweep();
    Ok(())
}

/// # Safety
/// `at` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> u32 {
    in_context("cuMemAlloc", |inside| {
        ensure(!at.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        let address = take(inside, bytes, Kind::Device)?;
        // SAFETY: by the caller.
        unsafe { put(at, address) }
    })
}

/// # Safety
/// Nothing is queued later that uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: u64) -> u32 {
    in_context("cuMemFree", |inside| match at {
        0 => Ok(()),
        at => give(inside, at, Kind::Device, false, R::CUDA_ERROR_INVALID_VALUE),
    })
}

/// # Safety
/// `at` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    in_context("cuMemHostAlloc", |inside| {
        ensure(!at.is_null() && flags < 8, R::CUDA_ERROR_INVALID_VALUE)?;
        let address = take(inside, bytes, Kind::Host)?;
        // SAFETY: by the caller.
        unsafe { put(at, std::ptr::with_exposed_provenance_mut(address as usize)) }
    })
}

/// # Safety
/// Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> u32 {
    in_context("cuMemFreeHost", |inside| match at.addr() as u64 {
        0 => Ok(()),
        at => give(inside, at, Kind::Host, false, R::CUDA_ERROR_INVALID_VALUE),
    })
}

/// # Safety
/// The range is memory of this process, and stays until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    in_context("cuMemHostRegister", |inside| {
        ensure(flags < 16, R::CUDA_ERROR_INVALID_VALUE)?;
        inside.unless_capturing()?;
        let (state, driver) = inside.parts();
        state.books.register(&driver.space, at.expose_provenance() as u64, bytes as u64)
    })
}

/// # Safety
/// Nothing is queued later that uses the memory through the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(at: *mut c_void) -> u32 {
    in_context("cuMemHostUnregister", |inside| {
        give(inside, at.addr() as u64, Kind::Host, true, R::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    })
}
