//! Memory for books: host memory that says what is where in other memory, and may be far larger than the processor's caches.
//!
//! Books of a million blocks are a hundred megabytes, and most of what an operation reads of them was last used long ago. So they are
//! in large pages where the system has some, what will be read soon is fetched ahead, and what will not be read soon is
//! written past the caches. All three are hints: where there is none, everything is the same and slower.
#![allow(clippy::disallowed_methods, reason = "this is a backend: the one layer that may ask the system for memory")]

use std::ops::{Deref, DerefMut};

/// Books of this many bytes are put into large pages. The system's are 2 MiB.
const WORTH_LARGE_PAGES: usize = 2 << 20;
/// Where large pages may begin, at the least: the largest size of the system's own pages.
const PAGE: usize = 64 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Words that are copied past the caches at once, at the least: it ends with a wait for all of them.
const STREAM: usize = 1024;

/// Books of `count` entries, if there is memory for them.
pub(crate) fn books<T>(count: usize, entry: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    // Before they are written: pages are made as they are first touched.
    in_large_pages(all.as_ptr() as usize, count * size_of::<T>());
    all.resize_with(count, entry);
    Some(all.into_boxed_slice())
}

/// Asks for large pages where all of a page lies in the range.
fn in_large_pages(start: usize, bytes: usize) {
    let (first, end) = (start.next_multiple_of(PAGE), (start + bytes) / PAGE * PAGE);
    if bytes < WORTH_LARGE_PAGES || end <= first {
        return;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: advice about pages that lie in an allocation of the caller's as a whole. It changes neither what is in them nor who
    // may reach them, and what it returns says only whether it was taken.
    unsafe {
        libc::madvise(std::ptr::with_exposed_provenance_mut(first), end - first, libc::MADV_HUGEPAGE);
    }
}

/// Begins to read the cache line of `entry`, which is needed soon.
#[inline]
pub(crate) fn fetch<T>(entry: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which faults on no address; and this one is a reference's.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = entry;
}

/// Words that begin with a cache line.
pub(crate) struct Words {
    all: Box<[u32]>,
    /// Words before the first line.
    skip: usize,
    /// Larger than the caches.
    is_large: bool,
}

impl Words {
    /// So many zeros, if there is memory for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let all = books(count.checked_add(LINE / size_of::<u32>())?, || 0u32)?;
        let skip = all.as_ptr().align_offset(LINE).min(all.len() - count);
        Some(Words { skip, is_large: count * size_of::<u32>() >= WORTH_LARGE_PAGES, all })
    }

    /// Copies `from` to the words from `at` on: past the caches where it would not stay there, and take the place of what would.
    pub(crate) fn write(&mut self, at: usize, from: &[u32]) {
        let is_large = self.is_large && from.len() >= STREAM;
        let to = &mut self[at..][..from.len()];
        if is_large { stream(to, from) } else { to.copy_from_slice(from) }
    }
}

impl Deref for Words {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        &self.all[self.skip..]
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        &mut self.all[self.skip..]
    }
}

/// Copies words of one length without reading their lines into the caches first.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn stream(to: &mut [u32], from: &[u32]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let ((fours, rest), (from_fours, from_rest)) = (to.as_chunks_mut::<4>(), from.as_chunks::<4>());
    if !fours.as_ptr().cast::<__m128i>().is_aligned() {
        return to.copy_from_slice(from);
    }
    for (to, from) in fours.iter_mut().zip(from_fours) {
        // SAFETY: 16 bytes each, of a slice that is the caller's alone and one that is readable; the first begins at a multiple
        // of 16 bytes, so all do.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) };
    }
    rest.copy_from_slice(from_rest);
    // Before the lock is given up: these stores are in no order with others otherwise.
    // SAFETY: every x86-64 processor has it, and it touches nothing.
    unsafe { _mm_sfence() };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn stream(to: &mut [u32], from: &[u32]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::{LINE, Words, books, stream};

    #[test]
    fn books_have_their_entries_however_large() {
        for count in [0, 1, 1000, 3 << 20] {
            let mut next = 0u32;
            let all = books(count, || {
                next += 1;
                next
            });
            assert!(all.unwrap().iter().copied().eq(1..=count as u32));
        }
        assert!(books(usize::MAX / 16, || 0u64).is_none(), "more than there is memory for");
    }

    #[test]
    fn words_begin_with_a_line_and_are_what_was_written() {
        for count in [0, 16, 1 << 20] {
            let mut words = Words::new(count).unwrap();
            assert!(words.len() >= count && (words.as_ptr() as usize).is_multiple_of(LINE));
            let from: Vec<u32> = (1..=count as u32).collect();
            words.write(0, &from);
            assert_eq!(words[..count], from);
        }
        assert!(Words::new(usize::MAX / 8).is_none());
    }

    /// At every start and length around what is copied at once.
    #[test]
    fn a_copy_past_the_caches_is_a_copy() {
        let from: Vec<u32> = (1..=64).collect();
        for start in 0..9 {
            for len in 0..40 {
                let mut to = Words::new(64).unwrap();
                stream(&mut to[start..][..len], &from[start + 3..][..len]);
                assert_eq!(to[start..][..len], from[start + 3..][..len]);
                assert!(to[..start].iter().chain(&to[start + len..]).all(|word| *word == 0), "nothing beside it");
            }
        }
    }
}
