//! Copies in a stream's order.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::sys::{CUresult as R, CUstream};

use super::{
    calls::{Inside, in_context},
    error::{Outcome, ensure},
    space::Kind,
    work::{Sides, Work},
};

/// Whether the device has so many bytes there, by now. Streams look again when it is their turn.
fn device(inside: &Inside, at: u64, bytes: usize, write: bool) -> Outcome {
    ensure(inside.driver.space.reaches(at, bytes as u64, write), R::CUDA_ERROR_INVALID_VALUE)
}

/// Whether host memory is page-locked: as a whole, or not at all.
fn locked(inside: &Inside, at: u64, bytes: usize) -> Outcome<bool> {
    let end = at.checked_add(bytes as u64).ok_or(R::CUDA_ERROR_INVALID_VALUE)?;
    ensure(at != 0, R::CUDA_ERROR_INVALID_VALUE)?;
    match inside.driver.space.at(at) {
        // One piece of locked memory and no other, nor what lies behind it.
        Some(range) => ensure(end <= range.end, R::CUDA_ERROR_INVALID_VALUE).map(|()| true),
        None => ensure(!inside.driver.space.touches(at, end, Kind::Host), R::CUDA_ERROR_INVALID_VALUE).map(|()| false),
    }
}

/// # Safety
/// `from` is readable for `bytes` bytes; page-locked memory until the copy is done, and in a capture, whenever it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: CUstream) -> u32 {
    in_context("cuMemcpyHtoDAsync", |inside| {
        let stream = inside.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        device(inside, to, bytes, true)?;
        let address = from.expose_provenance() as u64;
        let work = if locked(inside, address, bytes)? || inside.captures.is_captured(stream) {
            Work::Copy { to, from: address, bytes: bytes as u64, sides: Sides::In }
        } else {
            // SAFETY: by the caller.
            let from: Arc<[u8]> = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.into();
            Work::Put { to, from }
        };
        inside.queue(stream, work, Vec::new()).map(drop)
    })
}

/// # Safety
/// `to` is writable for `bytes` bytes; page-locked memory until the copy is done, and in a capture, whenever it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: CUstream) -> u32 {
    in_context("cuMemcpyDtoHAsync", |inside| {
        let stream = inside.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        device(inside, from, bytes, false)?;
        let address = to.expose_provenance() as u64;
        let later = locked(inside, address, bytes)?;
        let work = Work::Copy { to: address, from, bytes: bytes as u64, sides: Sides::Out };
        if let Some(mark) = inside.queue(stream, work, Vec::new())?.filter(|_| !later) {
            // The caller's memory is its own again when this returns.
            inside.wait_for(&mark);
            return inside.alive();
        }
        Ok(())
    })
}

/// # Safety
/// None is needed: what is not there is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: CUstream) -> u32 {
    in_context("cuMemcpyDtoDAsync", |inside| {
        let stream = inside.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        device(inside, from, bytes, false)?;
        device(inside, to, bytes, true)?;
        let work = Work::Copy { to, from, bytes: bytes as u64, sides: Sides::Inside };
        inside.queue(stream, work, Vec::new()).map(drop)
    })
}
