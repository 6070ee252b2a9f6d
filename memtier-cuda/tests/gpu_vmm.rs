//! Reserved addresses on a real device: growth under a live address, rollback, accounting.

mod support;

use memtier::{AcquireError, Backend, Bytes, Device, Op, PhaseName, Queue, Tag};
use memtier_cuda::{CudaBackend, CudaOptions};
use support::{Rng, backend};

const CHUNK: Bytes = Bytes::mib(256);
const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

fn chunks(count: u64) -> Bytes {
    CHUNK.times(count).unwrap()
}

fn free(backend: &CudaBackend) -> u64 {
    backend.memory().unwrap().free.count()
}

fn write(queue: &dyn Queue, at: u64, bytes: &[u8]) {
    // SAFETY: the callers pass committed ranges that nothing else uses.
    unsafe { queue.write(at, bytes) }.unwrap();
}

fn read(queue: &dyn Queue, at: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: the callers pass committed ranges.
    unsafe { queue.read(at, &mut out) }.unwrap();
    out
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..65_536).map(|_| rng.next() as u8).collect()
}

/// Bytes of another region, none of which may change.
const NEIGHBOUR: Bytes = Bytes::mib(64);

fn neighbour_pattern() -> Vec<u8> {
    let mut rng = Rng(99);
    (0..NEIGHBOUR.count() / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

#[test]
fn a_region_grows_and_shrinks_under_a_live_address() {
    let Some(backend) = backend() else { return };
    assert_eq!(backend.granule(), Bytes::mib(2));
    let queue = backend.open_queue(TAG).unwrap();
    let before = free(&backend);
    let base = backend.reserve(TAG, Bytes::gib(24), Bytes::ZERO).unwrap();
    assert_eq!(free(&backend), before, "24 GiB of addresses take memory");
    let neighbour = backend.reserve(TAG, NEIGHBOUR, NEIGHBOUR).unwrap();
    let others = neighbour_pattern();
    write(&*queue, neighbour, &others);
    read(&*queue, neighbour, 1);
    let with_neighbour = free(&backend);
    let mut now = 0;
    for next in [8, 2, 6, 4, 10] {
        // SAFETY: the base is ours; only what was committed is decommitted, and nothing runs.
        unsafe {
            if next > now {
                backend.commit(TAG, base, chunks(now), chunks(next)).unwrap();
            } else {
                backend.decommit(TAG, base, chunks(next), chunks(now)).unwrap();
            }
        }
        assert_eq!(with_neighbour - free(&backend), chunks(next).count(), "{now} to {next} chunks");
        let resident = backend.resident(base, Bytes::gib(24));
        assert_eq!(resident, Some(chunks(next)), "the books differ from the driver");
        println!("24 GiB at {base:#x}: {next} chunks of {CHUNK}, exactly, by the driver's count");
        // What survived is intact; what is new can be used.
        for chunk in 0..now.min(next) {
            assert_eq!(read(&*queue, base + chunks(chunk).count(), 65_536), pattern(chunk), "chunk {chunk}");
        }
        for chunk in now.min(next)..next {
            let at = base + chunks(chunk).count();
            write(&*queue, at, &pattern(chunk));
            write(&*queue, base + chunks(chunk + 1).count() - 65_536, &pattern(chunk));
        }
        // Waits for the writes: nothing may use what is decommitted next.
        read(&*queue, base, 1);
        now = next;
    }
    assert!(read(&*queue, neighbour, others.len()) == others, "a neighbour's data changed");
    // SAFETY: as above; released once.
    unsafe {
        backend.decommit(TAG, base, Bytes::ZERO, chunks(now)).unwrap();
        backend.release(TAG, neighbour, NEIGHBOUR, NEIGHBOUR).unwrap();
    }
    assert_eq!(free(&backend), before, "a full decommit did not return to the start");
    // SAFETY: as above.
    unsafe { backend.release(TAG, base, Bytes::gib(24), Bytes::ZERO) }.unwrap();
    let ops: Vec<_> = backend.journal().iter().map(|event| event.op).collect();
    let (r, c, d, f) = (Op::Reserve, Op::Commit, Op::Decommit, Op::Release);
    assert_eq!(ops, [r, r, c, d, c, d, c, d, f, f]);
    assert!(backend.journal().iter().all(|event| event.done && event.phase == PhaseName::Planning));
}

#[test]
fn a_commit_that_runs_out_of_memory_in_the_middle_takes_nothing() {
    let Some(backend) = backend() else { return };
    let queue = backend.open_queue(TAG).unwrap();
    let base = backend.reserve(TAG, Bytes::gib(512), chunks(1)).unwrap();
    write(&*queue, base, &pattern(1));
    let before = free(&backend);
    // Half of what is free maps, the rest does not.
    let too_much = Bytes::new((before + (before / 2)).next_multiple_of(CHUNK.count()));
    // SAFETY: the base is ours; the range is reserved and not committed.
    let error = unsafe { backend.commit(TAG, base, chunks(1), too_much) }.unwrap_err();
    let AcquireError::System { name: "test", reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{reason}");
    assert_eq!(free(&backend), before);
    assert_eq!(read(&*queue, base, 65_536), pattern(1));
    // The process goes on.
    // SAFETY: as above; released once.
    unsafe {
        backend.commit(TAG, base, chunks(1), chunks(3)).unwrap();
        backend.release(TAG, base, Bytes::gib(512), chunks(3)).unwrap();
    }
    let journal = backend.journal();
    assert_eq!(journal.iter().map(|event| event.done).collect::<Vec<_>>(), [true, false, true, true]);
}

#[test]
fn a_first_commit_that_runs_out_of_memory_leaves_no_reservation() {
    let Some(backend) = backend() else { return };
    let before = free(&backend);
    let whole = Bytes::new(backend.memory().unwrap().total.count().next_multiple_of(CHUNK.count()));
    backend.reserve(TAG, whole, whole).unwrap_err();
    assert_eq!(free(&backend), before);
}

#[test]
fn a_decommit_that_would_split_a_commit_says_what_to_do() {
    let Some(backend) = backend() else { return };
    let base = backend.reserve(TAG, Bytes::gib(1), CHUNK).unwrap();
    // SAFETY: the base is ours, and nothing runs.
    let error = unsafe { backend.decommit(TAG, base, Bytes::mib(128), CHUNK) }.unwrap_err();
    assert!(error.to_string().contains("whole commits"), "{error}");
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, Bytes::gib(1), CHUNK) }.unwrap();
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let Some(_there) = backend() else { return };
    let mut options = CudaOptions::default();
    options.ordinal = 64;
    let error = CudaBackend::with(options).unwrap_err().to_string();
    assert!(error.contains("no CUDA device 64") && error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
}

#[test]
fn clones_of_a_backend_share_its_books() {
    let Some(backend) = backend() else { return };
    let device = Device::new(backend.clone(), Bytes::gib(1));
    assert_eq!(device.report().live, Bytes::ZERO);
    assert_eq!(device.space(), "cuda");
    assert!(backend.journal().is_empty());
}

/// What a commit costs through the backend. Printed, not judged: the machine is shared.
#[test]
fn the_time_of_a_commit_and_of_its_return() {
    let Some(backend) = backend() else { return };
    let base = backend.reserve(TAG, Bytes::gib(24), Bytes::ZERO).unwrap();
    let mut times: Vec<[u128; 2]> = Vec::new();
    for _ in 0..21 {
        let start = std::time::Instant::now();
        // SAFETY: the base is ours, nothing is committed, and nothing runs.
        unsafe { backend.commit(TAG, base, Bytes::ZERO, CHUNK) }.unwrap();
        let commit = start.elapsed();
        let start = std::time::Instant::now();
        // SAFETY: committed above.
        unsafe { backend.decommit(TAG, base, Bytes::ZERO, CHUNK) }.unwrap();
        times.push([commit.as_nanos(), start.elapsed().as_nanos()]);
    }
    let median = |which: usize| {
        let mut sorted: Vec<_> = times.iter().map(|pair| pair[which]).collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2] as f64 / 1000.0
    };
    println!("commit of {CHUNK}: median {:.1} us, decommit {:.1} us", median(0), median(1));
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, Bytes::gib(24), Bytes::ZERO) }.unwrap();
}
