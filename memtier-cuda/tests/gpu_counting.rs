//! Allocations behind the planner's back are seen and named, whoever makes them.
#![allow(clippy::disallowed_methods, reason = "what nobody may do, to see that it is caught")]

mod support;

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{self, CUresult};
use memtier::{Backend, Bytes, PhaseName, Step, TableSpec, Tag};
use memtier_cuda::{AllocationCounter, Allocations, Taken, kernels};
use support::{Rig, backend, pool, skipped_without_a_real_device};

const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

/// The counter, or `None` with a sentence. Under a tool that has CUPTI to itself there is none.
fn counter() -> Option<AllocationCounter> {
    match AllocationCounter::start() {
        Ok(counter) => Some(counter),
        Err(error) if std::env::var_os("MEMTIER_REQUIRE_CUPTI").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn others_of<'c>(calls: &'c Allocations, function: &str) -> &'c memtier_cuda::Calls {
    calls.calls.iter().find(|calls| calls.function == function).unwrap()
}

fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

#[test]
fn a_backends_own_calls_are_told_from_everybody_elses() {
    if skipped_without_a_real_device("CUPTI counts calls of a real driver") {
        return;
    }
    let Some(backend) = backend() else { return };
    let Some(counter) = counter() else { return };
    let start = counter.so_far();
    let base = backend.reserve(TAG, Bytes::gib(1), Bytes::mib(6)).unwrap();
    let queue = backend.open_queue(TAG).unwrap();
    let own = counter.so_far().since(&start);
    // One piece of device memory, one of staging.
    assert_eq!((own.ours(), own.others()), (2, 0), "{own:?}");
    assert_eq!(own.to_string(), "0");

    let mut address = 0;
    let mut host = std::ptr::null_mut();
    // SAFETY: the context is current; what is allocated is freed once.
    unsafe {
        ok(sys::cuMemAlloc_v2(&mut address, 12 << 20));
        ok(sys::cuMemHostAlloc(&mut host, 1 << 20, 0));
    }
    let behind = counter.so_far().since(&start);
    println!("behind the back: {behind}");
    assert_eq!((behind.ours(), behind.others()), (2, 2));
    let alloc = others_of(&behind, "cuMemAlloc_v2");
    assert_eq!((alloc.taken, alloc.others, alloc.others_bytes), (Taken::Device, 1, 12 << 20));
    assert!(behind.to_string().contains("1 x cuMemAlloc_v2 of 12.00 MiB"), "{behind}");
    let pinned = behind.calls.iter().filter(|calls| calls.taken == Taken::Pinned).map(|calls| calls.others);
    assert_eq!(pinned.sum::<u64>(), 1);
    // One that fails takes nothing.
    // SAFETY: as above.
    unsafe {
        assert_ne!(sys::cuMemAlloc_v2(&mut 0, 1 << 50), CUresult::CUDA_SUCCESS);
        ok(sys::cuMemFree_v2(address));
        ok(sys::cuMemFreeHost(host));
    }
    assert_eq!(counter.so_far().since(&start), behind);
    drop(queue);
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, Bytes::gib(1), Bytes::mib(6)) }.unwrap();
}

#[test]
fn a_vendor_library_is_caught_when_it_allocates_while_serving() {
    if skipped_without_a_real_device("CUPTI counts calls of a real driver") {
        return;
    }
    let table = TableSpec { rows: 2, columns: 4 };
    let Some(Rig { device, kernels, mut engine, mut stream, .. }) = Rig::new(Bytes::mib(8), pool(16, 4096, 8), table)
    else {
        return;
    };
    let Some(counter) = counter() else { return };
    let start = counter.so_far();
    for _ in 0..100 {
        let mut step = engine.step(&mut stream).unwrap();
        let Step { on, buffers, .. } = &mut step;
        on.write(&mut buffers.work.x, &[1.0; 256]).unwrap();
        kernels::scale(on, &kernels, &mut buffers.work.y, &buffers.work.x, 2.0).unwrap();
        step.finish().unwrap().wait().unwrap();
    }
    let served = counter.so_far().since(&start);
    assert_eq!((served.ours(), served.others()), (0, 0), "{served:?}");

    // SAFETY: a vendor's library.
    let library = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"]
        .iter()
        .find_map(|name| unsafe { libloading::Library::new(*name) }.ok());
    let Some(library) = library else { return println!("skipped: no libcublas here") };
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: the functions have these types by their header; the handle is destroyed once.
    unsafe {
        let create = library.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"cublasCreate_v2").unwrap();
        let destroy = library.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"cublasDestroy_v2").unwrap();
        assert_eq!(create(&mut handle), 0);
        let by_cublas = counter.so_far().since(&start);
        println!("a cuBLAS handle while serving: {by_cublas}");
        assert!(by_cublas.others() > 0, "cuBLAS allocated, and nobody saw it");
        assert_eq!(by_cublas.ours(), 0);
        assert_eq!(destroy(handle), 0);
    }
    // The books of the device know nothing of it: only the counter does.
    assert_eq!(device.report().acquisitions[2], 0);
}
