//! Queues on a real device: order, staging, marks.

mod support;

use memtier::{Backend, Bytes, PhaseName, Queue, Tag};
use support::{Held, Rng, backend, is_emulated};

const TAG: Tag = Tag { name: "test", phase: PhaseName::Planning, pinned: false };

#[test]
fn copies_of_any_length_arrive_in_order() {
    let Some(backend) = backend() else { return };
    let queue = backend.open_queue(TAG).unwrap();
    let bytes = Bytes::mib(64);
    let base = backend.reserve(TAG, bytes, bytes).unwrap();
    let half = bytes.count() as usize / 2;
    let mut rng = Rng(5);
    let mut model: Vec<u8> = (0..half).map(|_| rng.next() as u8).collect();
    // Larger than the staging, so that it goes around the ring many times.
    // SAFETY: here and below: committed, and the device does it in this order.
    unsafe { queue.write(base, &model) }.unwrap();
    // Many small writes over each other: a step's page tables and lengths.
    for _ in 0..2000 {
        let length = 1 + rng.below(9000);
        let at = rng.below(half - length);
        let piece: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
        model[at..at + length].copy_from_slice(&piece);
        // SAFETY: as above.
        unsafe { queue.write(base + at as u64, &piece) }.unwrap();
    }
    // SAFETY: as above; two halves.
    unsafe { queue.copy(base, base + half as u64, half) }.unwrap();
    let mut out = vec![0; half];
    // SAFETY: as above.
    unsafe { queue.read(base + half as u64, &mut out) }.unwrap();
    assert!(out == model, "what came back differs");
    drop(queue);
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, bytes, bytes) }.unwrap();
}

/// Queues copies that take the device a while.
fn long_work(queue: &dyn Queue, base: u64, half: u64) {
    for _ in 0..8 {
        // SAFETY: two halves of a committed range.
        unsafe { queue.copy(base, base + half, half as usize) }.unwrap();
    }
}

#[test]
fn marks_settle_when_the_device_is_done_and_not_before() {
    let Some(backend) = backend() else { return };
    let queue = backend.open_queue(TAG).unwrap();
    let bytes = if is_emulated(&backend) { Bytes::mib(64) } else { Bytes::gib(4) };
    let base = backend.reserve(TAG, bytes, bytes).unwrap();
    let half = bytes.count() / 2;
    // With nothing queued, a mark is settled at once.
    queue.mark(3).unwrap();
    assert_eq!(queue.settled(), 3);
    queue.wait(3).unwrap();
    let held = Held::new(&backend);
    long_work(&*queue, base, half);
    queue.mark(4).unwrap();
    // 32 GiB of traffic take milliseconds.
    assert_eq!(queue.settled(), 3, "settled before the device was done");
    // Nothing in between: the latest mark stands for both.
    queue.mark(5).unwrap();
    assert_eq!(queue.settled(), 3);
    drop(held);
    queue.wait(5).unwrap();
    assert_eq!(queue.settled(), 5);
    // More marks than there are events, each behind work: they fold, and the last one still stands for all.
    let held = Held::new(&backend);
    long_work(&*queue, base, half);
    for step in 6..300 {
        // SAFETY: committed; the device does it in order.
        unsafe { queue.write(base, &[1, 2, 3, 4]) }.unwrap();
        queue.mark(step).unwrap();
    }
    assert!(queue.settled() < 299);
    drop(held);
    queue.wait(299).unwrap();
    assert_eq!(queue.settled(), 299);
    // Waiting for an early one of several does not need the late ones.
    queue.mark(300).unwrap();
    let start = std::time::Instant::now();
    while queue.settled() < 300 {
        assert!(start.elapsed().as_secs() < 10);
    }
    drop(queue);
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, bytes, bytes) }.unwrap();
}

#[test]
fn a_queue_that_is_dropped_with_work_in_flight_waits_for_it() {
    let Some(backend) = backend() else { return };
    let bytes = if is_emulated(&backend) { Bytes::mib(64) } else { Bytes::gib(2) };
    let base = backend.reserve(TAG, bytes, bytes).unwrap();
    for _ in 0..3 {
        let queue = backend.open_queue(TAG).unwrap();
        long_work(&*queue, base, bytes.count() / 2);
        queue.mark(1).unwrap();
    }
    // SAFETY: released once; the queues are gone and so is their work.
    unsafe { backend.release(TAG, base, bytes, bytes) }.unwrap();
}

#[test]
fn queues_work_from_any_thread() {
    let Some(backend) = backend() else { return };
    let queue = backend.open_queue(TAG).unwrap();
    let bytes = Bytes::mib(16);
    let base = backend.reserve(TAG, bytes, bytes).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..100u64 {
                    let value = (thread * 1000 + round).to_le_bytes();
                    let at = base + thread * (1 << 20);
                    let mut back = [0; 8];
                    // SAFETY: every thread has a MiB of its own.
                    unsafe {
                        queue.write(at, &value).unwrap();
                        queue.read(at, &mut back).unwrap();
                    }
                    assert_eq!(back, value);
                }
            });
        }
    });
    drop(queue);
    // SAFETY: released once.
    unsafe { backend.release(TAG, base, bytes, bytes) }.unwrap();
}
