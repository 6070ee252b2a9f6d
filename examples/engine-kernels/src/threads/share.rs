//! How kernels share out their work: ranges of rows, and disjoint parts of an output.

use super::Threads;

/// Calls `body` with ranges that cover `0..total`, of at most `grain` each: on all threads, or with the whole range on
/// this one where the work is too small to share.
pub(crate) fn spread(
    threads: &Threads,
    total: usize,
    grain: usize,
    worthwhile: bool,
    body: &(dyn Fn(std::ops::Range<usize>) + Sync),
) {
    if !worthwhile || total <= grain || threads.count() == 1 {
        return body(0..total);
    }
    threads.pieces(total.div_ceil(grain), &|piece| body(piece * grain..((piece + 1) * grain).min(total)));
}

/// A mutable slice that several threads of a region write disjoint parts of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for `&'a mut [T]`, and every access goes through `part`, whose caller vouches for disjointness.
unsafe impl<T: Send> Send for Shares<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shares<'_, T> {}

impl<'a, T> Shares<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Shares<'a, T> {
        Shares { start: slice.as_mut_ptr(), len: slice.len(), _borrow: std::marker::PhantomData }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    ///
    /// No two live parts overlap.
    #[allow(clippy::mut_from_ref, reason = "the caller vouches for disjointness")]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part lies inside of its slice");
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise, alive for `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
