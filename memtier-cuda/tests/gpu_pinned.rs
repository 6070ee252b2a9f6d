//! Page-locked host memory: growth, books, and what copies through it cost beside pageable memory.

mod support;

use std::time::Instant;

use memtier::{
    AcquireError, Backend, Bytes, Cuda, Device, Engine, HostBackend, Limits, PhaseName, Pinned, PinnedSpec, Queue,
    Space, Step, StreamSpec, TableSpec, Tag,
};
use memtier_cuda::{PinnedBackend, kernels};
use support::{Dims, Rng, Toy, ToySpec, backend, kernels as load_kernels, pool, sized, skipped_when_emulated};

const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

/// Gigabytes a second of `rounds` copies of `bytes`, and how long the thread was kept for each, in microseconds.
fn rate(queue: &dyn Queue, bytes: u64, rounds: u64, mut copy: impl FnMut()) -> (f64, f64) {
    copy();
    queue.mark(1).unwrap();
    queue.wait(1).unwrap();
    let start = Instant::now();
    (0..rounds).for_each(|_| copy());
    let kept = start.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    queue.mark(2).unwrap();
    queue.wait(2).unwrap();
    ((bytes * rounds) as f64 / start.elapsed().as_secs_f64() / 1e9, kept)
}

#[test]
fn copies_through_page_locked_memory_and_through_other() {
    let Some(backend) = backend() else { return };
    let bytes = sized(&backend, Bytes::mib(256), Bytes::mib(16));
    let device = backend.reserve(TAG, bytes, bytes).unwrap();
    let pageable = HostBackend::new();
    let pinned = PinnedBackend::new(&backend);
    let count = bytes.count() as usize;
    let mut rates = Vec::new();
    for (name, host) in [("page-locked", &pinned as &dyn Backend), ("pageable", &pageable)] {
        let start = Instant::now();
        let base = host.reserve(TAG, bytes, bytes).unwrap();
        let taken = start.elapsed().as_secs_f64() * 1e3;
        // SAFETY: committed and ours; every page is touched, so that the first copy does not pay for it.
        unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(base as usize), 7, count) };
        let queue = backend.open_queue(TAG).unwrap();
        // SAFETY: both are committed, as long, and used by this queue only.
        let (inward, kept_in) =
            rate(&*queue, bytes.count(), 8, || unsafe { queue.copy_in(base, device, count) }.unwrap());
        let queue = backend.open_queue(TAG).unwrap();
        // SAFETY: as above.
        let (out, kept_out) =
            rate(&*queue, bytes.count(), 8, || unsafe { queue.copy_out(device, base, count) }.unwrap());
        println!(
            "{name}: {inward:.1} GB/s in, {out:.1} GB/s out; the thread is kept {kept_in:.0} and {kept_out:.0} us a copy of {bytes}; \
             taking it {taken:.1} ms"
        );
        rates.push((inward, out, kept_in));
        drop(queue);
        // SAFETY: released once; the queue is gone and so is its work.
        unsafe { host.release(TAG, base, bytes, bytes) }.unwrap();
    }
    // SAFETY: as above.
    unsafe { backend.release(TAG, device, bytes, bytes) }.unwrap();
    if skipped_when_emulated(&backend, "times are compared here") {
        return;
    }
    assert!(rates[0].2 < rates[1].2, "a copy of page-locked memory kept the thread as long as one of other memory");
}

#[test]
fn a_region_grows_under_its_address_and_copies_cross_from_one_commit_into_the_next() {
    let Some(backend) = backend() else { return };
    let pinned = PinnedBackend::new(&backend);
    let queue = backend.open_queue(TAG).unwrap();
    let mib = |count: u64| Bytes::mib(count);
    let base = pinned.reserve(TAG, mib(64), mib(2)).unwrap();
    let device = backend.reserve(TAG, mib(16), mib(16)).unwrap();
    let back = backend.reserve(TAG, mib(16), mib(16)).unwrap();
    let mut rng = Rng(44);
    let host = |at: u64, count: usize| {
        // SAFETY: the callers stay inside what is committed, and wait for copies first.
        unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>((base + at) as usize), count)
        }
    };
    host(0, 2 << 20).fill_with(|| rng.next() as u8);
    let first = host(0, 2 << 20).to_vec();
    // SAFETY: the base is ours; each range is reserved and not committed.
    unsafe {
        pinned.commit(TAG, base, mib(2), mib(8)).unwrap();
        pinned.commit(TAG, base, mib(8), mib(12)).unwrap();
    }
    assert!(host(0, 2 << 20) == first, "growth changed what was there");
    assert_eq!(pinned.resident(base, mib(64)), Some(mib(12)));
    host(0, 12 << 20).fill_with(|| rng.next() as u8);
    let all = host(0, 12 << 20).to_vec();
    // SAFETY: committed, as long, used by this queue only.
    unsafe {
        queue.copy_in(base, device, 12 << 20).unwrap();
        queue.copy(device, back, 12 << 20).unwrap();
        let mut read = vec![0; 12 << 20];
        queue.read(back, &mut read).unwrap();
        assert!(read == all, "a copy over three commits brought something else");
        host(0, 12 << 20).fill(0);
        queue.copy_out(back, base, 12 << 20).unwrap();
    }
    queue.mark(1).unwrap();
    queue.wait(1).unwrap();
    assert!(host(0, 12 << 20) == all, "the way back differs");
    // SAFETY: committed as a whole, and nothing runs.
    unsafe {
        let split = pinned.decommit(TAG, base, mib(4), mib(12)).unwrap_err();
        assert!(split.to_string().contains("whole commits"), "{split}");
        pinned.decommit(TAG, base, mib(2), mib(12)).unwrap();
    }
    assert!(host(0, 2 << 20) == &all[..2 << 20]);
    drop(queue);
    // SAFETY: released once.
    unsafe {
        pinned.release(TAG, base, mib(64), mib(2)).unwrap();
        backend.release(TAG, device, mib(16), mib(16)).unwrap();
        backend.release(TAG, back, mib(16), mib(16)).unwrap();
    }
}

#[test]
fn a_registration_that_is_refused_takes_nothing() {
    let Some(backend) = backend() else { return };
    let pinned = PinnedBackend::new(&backend);
    backend.fail("cuMemHostRegister", 0);
    let error = pinned.reserve(TAG, Bytes::mib(64), Bytes::mib(8)).unwrap_err();
    let AcquireError::System { name: "test", reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("cuMemHostRegister") && reason.contains("ulimit -l"), "{reason}");
    let base = pinned.reserve(TAG, Bytes::mib(64), Bytes::mib(8)).unwrap();
    backend.fail("cuMemHostRegister", 0);
    // SAFETY: the base is ours; released once.
    unsafe {
        pinned.commit(TAG, base, Bytes::mib(8), Bytes::mib(16)).unwrap_err();
        assert_eq!(pinned.resident(base, Bytes::mib(64)), Some(Bytes::mib(8)));
        pinned.commit(TAG, base, Bytes::mib(8), Bytes::mib(16)).unwrap();
        pinned.release(TAG, base, Bytes::mib(64), Bytes::mib(16)).unwrap();
    }
}

#[test]
fn results_are_read_back_while_the_next_step_runs() {
    let Some(backend) = backend() else { return };
    let n = sized(&backend, 16 << 20, 1 << 20);
    let kernels = load_kernels(&backend);
    let device = Device::new(backend.clone(), Bytes::gib(1));
    let host = Device::new(PinnedBackend::new(&backend), Bytes::mib(256));
    let mut engine = Engine::open(&device).with(&host).map_err(|_| "another space").unwrap();
    let dims = Dims { elements: n };
    let table = TableSpec { rows: 2, columns: 4 };
    let lines = engine.declare_bundle::<Toy>(ToySpec {
        weights: Dims { elements: 16 },
        work: dims,
        kv: pool(16, 4096, 8),
        table,
    });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(1) });
    let buffers = [(); 2].map(|()| engine.declare::<Pinned<f32>>(PinnedSpec { len: n }));
    let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(1))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut free: Vec<_> = buffers.into_iter().map(|line| engine.pin(line).unwrap()).collect();
    assert_eq!(host.report().live, Bytes::new(8 * n as u64), "page-locked memory has a budget and books of its own");
    let mut engine = engine.serve::<Toy>().unwrap();

    // Results of a step are looked at when the next one is under way.
    let mut before = None;
    let (mut queued, mut waited) = (f64::INFINITY, 0.0f64);
    for round in 0..6u8 {
        let mut step = engine.step(&mut stream).unwrap();
        let Step { on, buffers, .. } = &mut step;
        on.write(&mut buffers.work.x, &vec![f32::from(round); 1024]).unwrap();
        kernels::scale(on, &kernels, &mut buffers.work.y, &buffers.work.x, 3.0).unwrap();
        let start = Instant::now();
        let late = on.read_back(&buffers.work.y, free.pop().unwrap()).unwrap();
        queued = queued.min(start.elapsed().as_secs_f64());
        let fence = step.finish().unwrap();
        if let Some((value, late, fence)) = before.replace((f32::from(round) * 3.0, late, fence)) {
            let start = Instant::now();
            let Ok(buffer) = memtier::ReadBack::take(late, &memtier::Fence::wait(&fence).unwrap()) else {
                panic!("another stream")
            };
            waited = waited.max(start.elapsed().as_secs_f64());
            assert!(buffer[..1024].iter().all(|found| *found == value), "round {round}");
            free.push(buffer);
        }
    }
    println!("read back of 64 MiB: queued in {:.1} us, waited {:.1} us at most", queued * 1e6, waited * 1e6);
    // 64 MiB take more than a millisecond: whoever queues them does not wait for them.
    if !skipped_when_emulated(&backend, "a time is compared here") {
        assert!(queued < 3e-4, "{queued}");
    }
    drop(before);
    assert_eq!(host.report().pinned_acquisitions, 0, "page-locked memory was taken while serving");
    drop((engine.drain().unwrap().end_model(), stream, free));
    assert_eq!((device.report().live, host.report().live), (Bytes::ZERO, Bytes::ZERO));
}
