//! A value of a few words that one writer replaces and any number of readers copy. The writer never waits for a reader.
//!
//! The words are atomics, so a torn copy is a wrong value and no undefined behaviour, and no `unsafe` is needed. The number
//! in front says whether a copy is whole: odd while the writer is at work, and changed when it was.
//!
//! Compiled a second time against loom's atomics in the tests.

use super::sync::{AtomicU64, Ordering, fence, relax};

/// How often a reader tries again before it gives its time slice to a writer that may have been preempted.
const SPINS: u32 = 64;

pub(crate) struct SeqLock<const N: usize> {
    seq: AtomicU64,
    words: [AtomicU64; N],
}

/// The words during a read. Any of them may be older or newer than the others.
#[derive(Clone, Copy)]
pub(crate) struct Words<'l>(&'l [AtomicU64]);

impl Words<'_> {
    /// Word number `index`; zero past the end.
    #[inline]
    pub(crate) fn at(self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

impl<const N: usize> SeqLock<N> {
    pub(crate) fn new(words: [u64; N]) -> Self {
        SeqLock { seq: AtomicU64::new(0), words: words.map(AtomicU64::new) }
    }

    /// Replaces the first words. One writer at a time: callers hold a lock among themselves, which readers never take.
    pub(crate) fn write(&self, words: &[u64]) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq.wrapping_add(1), Ordering::Relaxed);
        // Keeps the words behind the odd number: who reads a new word, and fences, then sees that number.
        fence(Ordering::Release);
        for (at, word) in self.words.iter().zip(words) {
            at.store(*word, Ordering::Relaxed);
        }
        // And in front of the even one: who sees it has all words.
        self.seq.store(seq.wrapping_add(2), Ordering::Release);
    }

    /// Copies: `copy` takes the words it wants, as often as it takes to get them whole, and is given the number of writes
    /// before. What it made of torn words it must overwrite when it is called again, so it must cope with any.
    ///
    /// It writes to where the value is wanted: a snapshot that is returned through an option and a loop is moved twice, which
    /// takes longer than reading it.
    #[inline]
    pub(crate) fn read(&self, mut copy: impl FnMut(Words<'_>, u64)) {
        let mut tries = 0u32;
        while !self.try_read(&mut copy) {
            tries = tries.saturating_add(1);
            relax(tries > SPINS);
        }
    }

    /// One try, and whether what was copied is whole.
    #[inline]
    pub(crate) fn try_read(&self, copy: &mut impl FnMut(Words<'_>, u64)) -> bool {
        let before = self.seq.load(Ordering::Acquire);
        copy(Words(&self.words), before / 2);
        // Keeps the loads above in front of the second look at the number.
        fence(Ordering::Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        before == after && before.is_multiple_of(2)
    }

    /// One word alone, which is always whole.
    #[inline]
    pub(crate) fn peek(&self, index: usize) -> u64 {
        Words(&self.words).at(index)
    }
}
