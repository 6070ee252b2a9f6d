//! The driver's own checks: what memtier never does, and a driver refuses.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(missing_docs, reason = "a test program")]

use std::{
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::sys::{self, CUresult as R};
use memtier_emulator::driver::*;

const GRANULE: usize = 2 << 20;

/// A thread with a context, alone: tests count the device's memory.
struct Here(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn here() -> Here {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut context = ptr::null_mut();
    // SAFETY: writes a handle, which is given back in `drop`.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
    }
    Here(alone)
}

impl Drop for Here {
    fn drop(&mut self) {
        // SAFETY: retained once.
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(0) }, 0);
    }
}

fn is(found: u32, expected: R) {
    assert_eq!(found, expected as u32, "{expected:?}");
}

fn free() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers.
    is(unsafe { cuMemGetInfo_v2(&mut free, &mut total) }, R::CUDA_SUCCESS);
    free
}

fn properties() -> sys::CUmemAllocationProp {
    // SAFETY: plain data, for which zero means none.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties
}

fn access() -> sys::CUmemAccessDesc {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sys::CUmemAccessDesc { location: properties().location, flags }
}

fn reserve(bytes: usize) -> u64 {
    let mut at = 0;
    // SAFETY: writes an address.
    is(unsafe { cuMemAddressReserve(&mut at, bytes, 0, 0, 0) }, R::CUDA_SUCCESS);
    at
}

fn create(bytes: usize) -> u64 {
    let mut handle = 0;
    // SAFETY: reads the properties, writes a handle.
    is(unsafe { cuMemCreate(&mut handle, bytes, &properties(), 0) }, R::CUDA_SUCCESS);
    handle
}

fn stream(flags: u32) -> sys::CUstream {
    let mut stream = ptr::null_mut();
    // SAFETY: writes a handle.
    is(unsafe { cuStreamCreate(&mut stream, flags) }, R::CUDA_SUCCESS);
    stream
}

#[test]
fn what_is_no_multiple_of_the_granule_or_not_there_is_refused() {
    let _here = here();
    let invalid = R::CUDA_ERROR_INVALID_VALUE;
    let before = free();
    let (mut at, mut handle) = (0, 0);
    // SAFETY: arguments that are refused, or memory that only this test uses.
    unsafe {
        is(cuMemAddressReserve(&mut at, GRANULE + 4096, 0, 0, 0), invalid);
        is(cuMemCreate(&mut handle, 4096, &properties(), 0), invalid);
        is(cuMemCreate(&mut handle, GRANULE << 20, &properties(), 0), R::CUDA_ERROR_OUT_OF_MEMORY);
        let base = reserve(4 * GRANULE);
        let (one, two) = (create(GRANULE), create(2 * GRANULE));
        assert_eq!(before - free(), 3 * GRANULE);
        is(cuMemMap(base + 4096, GRANULE, 0, one, 0), invalid);
        is(cuMemMap(base + 3 * GRANULE as u64, 2 * GRANULE, 0, two, 0), invalid);
        is(cuMemMap(base, GRANULE, 0, two, 0), invalid);
        is(cuMemMap(base, 2 * GRANULE, 0, two, 0), R::CUDA_SUCCESS);
        // What lies there already; what is not mapped; what is a part.
        is(cuMemMap(base + GRANULE as u64, GRANULE, 0, one, 0), invalid);
        is(cuMemSetAccess(base, 3 * GRANULE, &access(), 1), invalid);
        is(cuMemUnmap(base, GRANULE), invalid);
        is(cuMemUnmap(base + 2 * GRANULE as u64, GRANULE), invalid);
        is(cuMemAddressFree(base, 4 * GRANULE), invalid);
        // Released while it is mapped: it goes with the mapping, and its handle now.
        is(cuMemRelease(two), R::CUDA_SUCCESS);
        is(cuMemRelease(two), invalid);
        assert_eq!(before - free(), 3 * GRANULE);
        is(cuMemUnmap(base, 2 * GRANULE), R::CUDA_SUCCESS);
        assert_eq!(before - free(), GRANULE);
        is(cuMemUnmap(base, 2 * GRANULE), invalid);
        is(cuMemRelease(one), R::CUDA_SUCCESS);
        is(cuMemAddressFree(base, 2 * GRANULE), invalid);
        is(cuMemAddressFree(base, 4 * GRANULE), R::CUDA_SUCCESS);
        is(cuMemAddressFree(base, 4 * GRANULE), invalid);
        is(cuMemAlloc_v2(&mut at, 100), R::CUDA_SUCCESS);
        is(cuMemFree_v2(at + 1), invalid);
        is(cuMemFree_v2(at), R::CUDA_SUCCESS);
        is(cuMemFree_v2(at), invalid);
    }
    assert_eq!(free(), before);
}

#[test]
fn memory_without_access_is_not_there_for_a_copy() {
    let _here = here();
    let (base, block, on) = (reserve(GRANULE), create(GRANULE), stream(1));
    let mut word = [7u32, 8];
    // SAFETY: memory that only this test uses.
    unsafe {
        is(cuMemMap(base, GRANULE, 0, block, 0), R::CUDA_SUCCESS);
        is(cuMemcpyHtoDAsync_v2(base, word.as_ptr().cast(), 8, on), R::CUDA_ERROR_INVALID_VALUE);
        let mut read = access();
        read.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
        is(cuMemSetAccess(base, GRANULE, &read, 1), R::CUDA_SUCCESS);
        is(cuMemcpyHtoDAsync_v2(base, word.as_ptr().cast(), 8, on), R::CUDA_ERROR_INVALID_VALUE);
        is(cuMemcpyDtoHAsync_v2(word.as_mut_ptr().cast(), base, 8, on), R::CUDA_SUCCESS);
        assert_eq!(word, [0, 0]);
        is(cuMemSetAccess(base, GRANULE, &access(), 1), R::CUDA_SUCCESS);
        is(cuMemcpyHtoDAsync_v2(base + GRANULE as u64 - 4, word.as_ptr().cast(), 8, on), R::CUDA_ERROR_INVALID_VALUE);
        is(cuMemcpyHtoDAsync_v2(base + GRANULE as u64 - 8, word.as_ptr().cast(), 8, on), R::CUDA_SUCCESS);
        is(cuStreamSynchronize(on), R::CUDA_SUCCESS);
    }
    // What is left goes with the context.
}

#[test]
fn a_capture_refuses_what_it_cannot_hold_and_what_follows() {
    let _here = here();
    let (on, other) = (stream(1), stream(0));
    let (mut graph, mut at, mut event) = (ptr::null_mut(), 0, ptr::null_mut());
    // SAFETY: live handles; memory that only this test uses.
    unsafe {
        is(cuMemAlloc_v2(&mut at, 16), R::CUDA_SUCCESS);
        is(cuEventCreate(&mut event, 0), R::CUDA_SUCCESS);
        is(cuStreamEndCapture(on, &mut graph), R::CUDA_ERROR_ILLEGAL_STATE);
        is(cuStreamBeginCapture_v2(ptr::null_mut(), 1), R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        is(cuStreamBeginCapture_v2(on, 1), R::CUDA_SUCCESS);
        is(cuStreamBeginCapture_v2(on, 1), R::CUDA_ERROR_ILLEGAL_STATE);
        let mut context = ptr::null_mut();
        is(cuCtxGetCurrent(&mut context), R::CUDA_SUCCESS);
        let handles = [on.addr(), event.addr(), context.addr()];
        std::thread::spawn(move || {
            let [on, event, context] = handles;
            let (mut graph, mut more) = (ptr::null_mut(), 0);
            is(cuCtxSetCurrent(ptr::without_provenance_mut(context)), R::CUDA_SUCCESS);
            let wrong = R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
            is(cuStreamEndCapture(ptr::without_provenance_mut(on), &mut graph), wrong);
            // Other threads may.
            is(cuMemAlloc_v2(&mut more, 16), R::CUDA_SUCCESS);
            is(cuEventQuery(ptr::without_provenance_mut(event)), R::CUDA_SUCCESS);
        })
        .join()
        .unwrap();
        is(cuMemcpyDtoDAsync_v2(at + 8, at, 4, on), R::CUDA_SUCCESS);
        is(cuMemAlloc_v2(&mut 0, 16), R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        is(cuMemcpyDtoDAsync_v2(at + 8, at, 4, on), R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        is(cuStreamEndCapture(on, &mut graph), R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert!(graph.is_null());
        // The default stream would wait for one that keeps its order, and is captured.
        is(cuStreamBeginCapture_v2(other, 2), R::CUDA_SUCCESS);
        is(cuMemcpyDtoDAsync_v2(at + 8, at, 4, ptr::null_mut()), R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        is(cuStreamEndCapture(other, &mut graph), R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

#[test]
fn a_graph_does_what_was_captured_when_it_is_launched_and_not_before() {
    let _here = here();
    let on = stream(1);
    let (mut graph, mut exec, mut at) = (ptr::null_mut(), ptr::null_mut(), 0);
    let word = [42u32, 0, 0, 0];
    let mut found = [1u32; 4];
    // SAFETY: live handles; memory that only this test uses.
    unsafe {
        is(cuMemAlloc_v2(&mut at, 16), R::CUDA_SUCCESS);
        is(cuMemcpyHtoDAsync_v2(at, word.as_ptr().cast(), 16, on), R::CUDA_SUCCESS);
        is(cuStreamBeginCapture_v2(on, 0), R::CUDA_SUCCESS);
        is(cuMemcpyDtoDAsync_v2(at + 8, at, 4, on), R::CUDA_SUCCESS);
        is(cuStreamEndCapture(on, &mut graph), R::CUDA_SUCCESS);
        is(cuGraphInstantiateWithFlags(&mut exec, graph, 0), R::CUDA_SUCCESS);
        is(cuGraphDestroy(graph), R::CUDA_SUCCESS);
        is(cuGraphDestroy(graph), R::CUDA_ERROR_INVALID_HANDLE);
        is(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), at, 16, on), R::CUDA_SUCCESS);
        assert_eq!(found, word);
        is(cuGraphLaunch(exec, on), R::CUDA_SUCCESS);
        is(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), at, 16, on), R::CUDA_SUCCESS);
        assert_eq!(found, [42, 0, 42, 0]);
        is(cuGraphExecDestroy(exec), R::CUDA_SUCCESS);
        is(cuGraphLaunch(exec, on), R::CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn work_is_under_way_until_the_device_is_let_go() {
    let _here = here();
    let (on, blocking) = (stream(1), stream(0));
    let (mut at, mut event) = (0, ptr::null_mut());
    // SAFETY: live handles; memory that only this test uses.
    unsafe {
        is(cuMemAlloc_v2(&mut at, 64), R::CUDA_SUCCESS);
        is(cuEventCreate(&mut event, 2), R::CUDA_SUCCESS);
        is(memtierEmulatedHold(1), R::CUDA_SUCCESS);
        is(cuMemcpyDtoDAsync_v2(at + 8, at, 4, on), R::CUDA_SUCCESS);
        is(cuEventRecord(event, on), R::CUDA_SUCCESS);
        is(cuEventQuery(event), R::CUDA_ERROR_NOT_READY);
        is(cuStreamQuery(on), R::CUDA_ERROR_NOT_READY);
        // The default stream waits for what keeps its order, and for nothing else.
        is(cuStreamQuery(ptr::null_mut()), R::CUDA_SUCCESS);
        is(cuStreamWaitEvent(blocking, event, 0), R::CUDA_SUCCESS);
        is(cuMemcpyDtoDAsync_v2(at + 16, at + 8, 4, ptr::null_mut()), R::CUDA_SUCCESS);
        is(cuStreamQuery(ptr::null_mut()), R::CUDA_ERROR_NOT_READY);
        is(memtierEmulatedHold(0), R::CUDA_SUCCESS);
        is(cuStreamSynchronize(ptr::null_mut()), R::CUDA_SUCCESS);
        is(cuEventQuery(event), R::CUDA_SUCCESS);
        is(cuStreamDestroy_v2(on), R::CUDA_SUCCESS);
        is(cuStreamQuery(on), R::CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn without_a_context_nothing_is_done_and_other_code_is_not_loaded() {
    let _here = here();
    std::thread::spawn(|| {
        let (mut at, mut other) = (0, 0);
        // SAFETY: writes integers; the calls are refused.
        unsafe {
            is(cuMemAlloc_v2(&mut at, 16), R::CUDA_ERROR_INVALID_CONTEXT);
            is(cuCtxSetCurrent(ptr::without_provenance_mut(0x77)), R::CUDA_ERROR_INVALID_CONTEXT);
            is(cuDeviceGet(&mut other, 1), R::CUDA_ERROR_INVALID_DEVICE);
            is(cuInit(1), R::CUDA_ERROR_INVALID_VALUE);
        }
    })
    .join()
    .unwrap();
    let (elf, newer) = (*b"\x7fELF\0\0\0\0", c".version 99.9\n.target sm_90\n");
    let mut module = ptr::null_mut();
    // SAFETY: images that end with zero.
    unsafe {
        is(cuModuleLoadData(&mut module, elf.as_ptr().cast()), R::CUDA_ERROR_NO_BINARY_FOR_GPU);
        is(cuModuleLoadData(&mut module, newer.as_ptr().cast()), R::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        is(cuModuleLoadData(&mut module, c"noise".as_ptr().cast()), R::CUDA_ERROR_INVALID_PTX);
    }
}
