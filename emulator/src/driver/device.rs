//! The device and its primary context.

use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::{self, CUresult as R};

use super::{
    calls::{CONTEXT, CURRENT, anywhere, in_context, initialised, pointer, put, start},
    error::{ensure, known},
    settings::{CONTEXT_BYTES, MOST_THREADS, SHARED},
};

/// The device's name.
pub const NAME: &str = "memtier emulated GPU";

/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> u32 {
    anywhere(|| {
        ensure(flags == 0, R::CUDA_ERROR_INVALID_VALUE)?;
        start()?;
        ensure(super::calls::driver()?.settings.devices > 0, R::CUDA_ERROR_NO_DEVICE)
    })
}

/// # Safety
/// `version` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // Before `cuInit`, too.
    anywhere(|| {
        start()?;
        // SAFETY: by the caller.
        unsafe { put(version, super::calls::driver()?.settings.cuda) }
    })
}

/// # Safety
/// `count` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    initialised("cuDeviceGetCount", |inside| {
        // SAFETY: by the caller.
        unsafe { put(count, inside.driver.settings.devices as c_int) }
    })
}

/// # Safety
/// `device` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    initialised("cuDeviceGet", |inside| {
        ensure(ordinal == 0 && inside.driver.settings.devices > 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: by the caller.
        unsafe { put(device, 0) }
    })
}

/// # Safety
/// `name` is null, or valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> u32 {
    initialised("cuDeviceGetName", |_| {
        ensure(!name.is_null() && length > 0, R::CUDA_ERROR_INVALID_VALUE)?;
        ensure(device == 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        let text = &NAME.as_bytes()[..NAME.len().min(length as usize - 1)];
        // SAFETY: by the caller there is room for as many bytes and a zero.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            name.cast::<u8>().add(text.len()).write(0);
        }
        Ok(())
    })
}

/// # Safety
/// `bytes` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> u32 {
    initialised("cuDeviceTotalMem", |inside| {
        ensure(device == 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: by the caller.
        unsafe { put(bytes, inside.driver.settings.memory as usize) }
    })
}

/// # Safety
/// `value` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> u32 {
    use sys::CUdevice_attribute as A;
    initialised("cuDeviceGetAttribute", |inside| {
        ensure(device == 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        let settings = &inside.driver.settings;
        let table: &[(A, u32)] = &[
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, MOST_THREADS),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, MOST_THREADS),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, MOST_THREADS),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX as u32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65_535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65_535),
            (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, settings.most_shared()),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, settings.multiprocessors),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, settings.capability.0),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, settings.capability.1),
            (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
            (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            (A::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 1),
        ];
        let found = table.iter().find(|(known, _)| *known as u32 == attribute);
        // Of others this device has none.
        let found = found.map_or(0, |(_, value)| *value as c_int);
        // SAFETY: by the caller.
        unsafe { put(value, found) }
    })
}

/// # Safety
/// `context` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: c_int) -> u32 {
    initialised("cuDevicePrimaryCtxRetain", |inside| {
        ensure(device == 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        ensure(!context.is_null(), R::CUDA_ERROR_INVALID_VALUE)?;
        if inside.retained == 0 {
            inside.books.charge(CONTEXT_BYTES)?;
        }
        inside.retained += 1;
        // SAFETY: by the caller.
        unsafe { put(context, pointer(CONTEXT)) }
    })
}

/// # Safety
/// When this was the last reference, nothing that belongs to the context is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    initialised("cuDevicePrimaryCtxRelease", |inside| {
        ensure(device == 0, R::CUDA_ERROR_INVALID_DEVICE)?;
        ensure(inside.retained > 0, R::CUDA_ERROR_INVALID_CONTEXT)?;
        inside.retained -= 1;
        if inside.retained == 0 {
            inside.drain_all();
            inside.close_streams();
            let (state, driver) = inside.parts();
            state.events.clear();
            state.modules.clear();
            state.graphs.clear();
            state.captures.clear();
            state.books.clear(&driver.space);
        }
        Ok(())
    })
}

/// # Safety
/// `context` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut sys::CUcontext) -> u32 {
    initialised("cuCtxGetCurrent", |_| {
        // SAFETY: by the caller.
        unsafe { put(context, pointer(CURRENT.get())) }
    })
}

/// # Safety
/// None is needed: what is no context is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: sys::CUcontext) -> u32 {
    initialised("cuCtxSetCurrent", |inside| {
        let context = context.addr() as u64;
        ensure(context == 0 || context == CONTEXT && inside.retained > 0, R::CUDA_ERROR_INVALID_CONTEXT)?;
        CURRENT.set(context);
        Ok(())
    })
}

/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> u32 {
    in_context("cuCtxSynchronize", |inside| {
        inside.unless_capturing()?;
        inside.drain_all();
        inside.alive()
    })
}

/// # Safety
/// `name` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> u32 {
    anywhere(|| {
        let found = known(code).map_or(std::ptr::null(), |(name, _)| name.as_ptr());
        // SAFETY: by the caller.
        unsafe { put(name, found) }?;
        ensure(!found.is_null(), R::CUDA_ERROR_INVALID_VALUE)
    })
}

/// # Safety
/// `words` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_uint, words: *mut *const c_char) -> u32 {
    anywhere(|| {
        let found = known(code).map_or(std::ptr::null(), |(_, words)| words.as_ptr());
        // SAFETY: by the caller.
        unsafe { put(words, found) }?;
        ensure(!found.is_null(), R::CUDA_ERROR_INVALID_VALUE)
    })
}
