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
    #[inline(always)]
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

    /// Copies: `copy` reads the words it wants, as often as it takes to get them whole, and is given the number of writes
    /// before. What it makes of torn words is thrown away, so it must cope with any.
    ///
    /// Always inlined, and without an option around the value: a snapshot is half a kilobyte, and moving it from place to
    /// place takes longer than reading it.
    #[inline(always)]
    pub(crate) fn read<T>(&self, mut copy: impl FnMut(Words<'_>, u64) -> T) -> T {
        let mut tries = 0u32;
        loop {
            let before = self.begin();
            let value = copy(Words(&self.words), before / 2);
            if self.whole(before) {
                return value;
            }
            tries = tries.saturating_add(1);
            relax(tries > SPINS);
        }
    }

    /// One try; `None` when the writer was at work.
    #[cfg(test)]
    #[allow(dead_code, reason = "for the model, whose readers must not wait")]
    pub(crate) fn try_read<T>(&self, copy: impl FnOnce(Words<'_>, u64) -> T) -> Option<T> {
        let before = self.begin();
        let value = copy(Words(&self.words), before / 2);
        self.whole(before).then_some(value)
    }

    #[inline(always)]
    fn begin(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Whether nothing was written since [`begin`](Self::begin) returned `before`.
    #[inline(always)]
    fn whole(&self, before: u64) -> bool {
        // Keeps the loads of the copy in front of the second look at the number.
        fence(Ordering::Acquire);
        self.seq.load(Ordering::Relaxed) == before && before.is_multiple_of(2)
    }

    /// How many writes there were: who copied after as many has what there is. Odd halves count as the write before, so a
    /// writer at work is noticed when it is done.
    #[inline]
    pub(crate) fn writes(&self) -> u64 {
        self.begin() / 2
    }

    /// One word alone, which is always whole.
    #[inline]
    pub(crate) fn peek(&self, index: usize) -> u64 {
        Words(&self.words).at(index)
    }
}
