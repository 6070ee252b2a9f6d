//! What this crate costs on top of the bare driver, both in one run. Printed, not judged: the machine is shared.
#![allow(clippy::disallowed_methods, reason = "the bare driver, to compare with")]

mod support;

use std::{ffi::c_void, ptr, time::Instant};

use cudarc::driver::sys::{self, CUresult};
use memtier::{Backend, Bytes, PhaseName, Step, TableSpec, Tag};
use memtier_cuda::kernels;
use support::{Rig, backend, kernels_folder, pool};

const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// A commit and its return by the driver's own calls, in microseconds.
fn bare_commit(base: u64, bytes: usize) -> (f64, f64) {
    // SAFETY: plain data, zero means none; the range is reserved, and nothing is mapped in it before or after.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: properties.location, flags };
        let mut handle = 0;
        let start = Instant::now();
        ok(sys::cuMemCreate(&mut handle, bytes, &properties, 0));
        ok(sys::cuMemMap(base, bytes, 0, handle, 0));
        ok(sys::cuMemSetAccess(base, bytes, &access, 1));
        let commit = micros(start);
        let start = Instant::now();
        ok(sys::cuMemUnmap(base, bytes));
        ok(sys::cuMemRelease(handle));
        (commit, micros(start))
    }
}

#[test]
fn commits() {
    let Some(backend) = backend() else { return };
    let chunk = Bytes::mib(256);
    let base = backend.reserve(TAG, Bytes::gib(24), Bytes::ZERO).unwrap();
    let (mut ours, mut bare) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for round in 0..41 {
        let start = Instant::now();
        // SAFETY: the base is ours, nothing is committed, and nothing runs.
        unsafe { backend.commit(TAG, base, Bytes::ZERO, chunk) }.unwrap();
        let commit = micros(start);
        let start = Instant::now();
        // SAFETY: committed above.
        unsafe { backend.decommit(TAG, base, Bytes::ZERO, chunk) }.unwrap();
        let decommit = micros(start);
        let (bare_commit, bare_decommit) = bare_commit(base, chunk.count() as usize);
        if round > 0 {
            ours.0.push(commit);
            ours.1.push(decommit);
            bare.0.push(bare_commit);
            bare.1.push(bare_decommit);
        }
    }
    for (what, ours, bare) in [("commit", ours.0, bare.0), ("decommit", ours.1, bare.1)] {
        let (ours, bare) = (median(ours), median(bare));
        println!("{what} of 256 MiB: {ours:.1} us, by the bare driver {bare:.1} us: {:.3} x", ours / bare);
    }
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, Bytes::gib(24), Bytes::ZERO) }.unwrap();
}

#[test]
fn launches() {
    let table = TableSpec { rows: 2, columns: 4 };
    let Some(Rig { backend, kernels, mut engine, mut stream, .. }) = Rig::new(Bytes::mib(8), pool(16, 4096, 8), table)
    else {
        return;
    };
    let image = std::fs::read(kernels_folder().join(kernels.target()).join("vector.cubin")).unwrap();
    let (mut module, mut function, mut bare_stream) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the context is current: the engine was opened in this thread; the names end with zero.
    unsafe {
        ok(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(&mut function, module, c"scale_f32".as_ptr()));
        ok(sys::cuStreamCreate(&mut bare_stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32));
    }
    let memory = backend.reserve(TAG, Bytes::mib(2), Bytes::mib(2)).unwrap();
    let count = 500;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut step = engine.step(&mut stream).unwrap();
    let Step { on, scratch, .. } = &mut step;
    let (mut out, x) = (scratch.take::<f32>(256).unwrap(), scratch.take::<f32>(256).unwrap());
    for round in 0..41 {
        let start = Instant::now();
        for _ in 0..count {
            kernels::scale(on, &kernels, &mut out, &x, 2.0).unwrap();
        }
        let wrapped = micros(start) / f64::from(count);
        on.read::<f32>(&out, &mut [0.0]).unwrap();
        let start = Instant::now();
        for _ in 0..count {
            let (out, x, factor, n) = (memory, memory + 4096, 2.0f32, 256u64);
            let mut arguments = [ptr::from_ref(&out).cast::<c_void>(), ptr::from_ref(&x).cast()]
                .into_iter()
                .chain([ptr::from_ref(&factor).cast::<c_void>(), ptr::from_ref(&n).cast()])
                .map(<*const c_void>::cast_mut);
            let mut arguments: [*mut c_void; 4] = std::array::from_fn(|_| arguments.next().unwrap());
            // SAFETY: the kernel's four arguments, on memory of ours.
            ok(unsafe {
                let arguments = arguments.as_mut_ptr();
                sys::cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, bare_stream, arguments, ptr::null_mut())
            });
        }
        let by_hand = micros(start) / f64::from(count);
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamSynchronize(bare_stream) });
        if round > 0 {
            ours.push(wrapped);
            bare.push(by_hand);
        }
    }
    step.finish().unwrap().wait().unwrap();
    let (ours, bare) = (median(ours), median(bare));
    println!("launch: {ours:.3} us, by the bare driver {bare:.3} us: {:.3} x", ours / bare);
    // SAFETY: nothing runs; each is destroyed once.
    unsafe {
        ok(sys::cuStreamDestroy_v2(bare_stream));
        ok(sys::cuModuleUnload(module));
        backend.release(TAG, memory, Bytes::mib(2), Bytes::mib(2)).unwrap();
    }
}
