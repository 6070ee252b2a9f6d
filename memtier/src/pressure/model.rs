//! Every interleaving of a writer and a reader of the seqlock, and every value that the memory model lets the reader see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p memtier --lib pressure::model`

use loom::{sync::Arc, thread};

use self::seqlock::{SeqLock, Words};

/// The lock's own file, on loom's atomics.
#[allow(dead_code, reason = "the model reads whole values only")]
#[path = "seqlock.rs"]
mod seqlock;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub(super) fn relax(_long: bool) {
        loom::thread::yield_now();
    }
}

#[test]
fn a_reader_sees_whole_values_in_order() {
    loom::model(|| {
        let lock = Arc::new(SeqLock::new([0, 0]));
        let writer = thread::spawn({
            let lock = lock.clone();
            // No loop and no load that a reader could hold up: the writer never waits.
            move || (1..=2).for_each(|round| lock.write(&[round, round * 10]))
        });
        let mut last = 0;
        for _ in 0..2 {
            let copy = |words: Words<'_>, seq| (words.at(0), words.at(1), seq);
            if let Some((one, two, seq)) = lock.try_read(copy) {
                assert!(two == one * 10 && one == seq && seq >= last, "{one} {two} as {seq} after {last}");
                last = seq;
            }
        }
        writer.join().unwrap();
        assert_eq!(lock.read(|words, seq| (words.at(0), words.at(1), seq)), (2, 20, 2));
    });
}

#[test]
fn a_reader_that_tries_again_gets_a_value() {
    loom::model(|| {
        let lock = Arc::new(SeqLock::new([0, 0]));
        let writer = thread::spawn({
            let lock = lock.clone();
            move || lock.write(&[1, 10])
        });
        let (one, two) = lock.read(|words, _| (words.at(0), words.at(1)));
        assert_eq!(two, one * 10);
        writer.join().unwrap();
    });
}
