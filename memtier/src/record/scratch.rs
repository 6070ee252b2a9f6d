//! T4: one LIFO stack per stream, sized by the plan.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    backend::Region,
    element::Plain,
    place::{Mark, Place},
    span::StableSpanMut,
    units::Bytes,
};

/// Every span starts on a multiple of this.
const ALIGN: u64 = 256;

/// The forward scratch of one stream: the memory behind `step.scratch`.
pub struct ScratchStack {
    region: Arc<Region>,
    bytes: Bytes,
    high_water: AtomicU64,
}

impl ScratchStack {
    pub(crate) fn new(region: Arc<Region>, bytes: Bytes) -> Arc<Self> {
        Arc::new(ScratchStack { region, bytes, high_water: AtomicU64::new(0) })
    }

    /// What the plan gave it.
    pub fn capacity(&self) -> Bytes {
        self.bytes
    }

    /// The most that any step has used.
    pub fn high_water(&self) -> Bytes {
        Bytes::new(self.high_water.load(Ordering::Relaxed))
    }

    /// All of it. The caller holds the stream by `&mut`, so there is one frame at a time.
    pub(crate) fn frame<P: Place>(&self, mark: Mark<P>) -> ScratchFrame<'_, P> {
        let top = self.region.base();
        ScratchFrame { stack: self, top, end: top + self.bytes.count(), mark, exclusive: PhantomData }
    }
}

/// The free part of a scratch stack, for `'f`.
///
/// It splits off spans as `split_at_mut` splits a slice, so there is no mark to rewind (row c), nothing to drop, and a
/// leaked frame costs nothing.
pub struct ScratchFrame<'f, P> {
    stack: &'f ScratchStack,
    top: u64,
    end: u64,
    mark: Mark<P>,
    exclusive: PhantomData<&'f mut ()>,
}

/// The scratch stack is used up: the plan was made for less. Nothing was taken; the frame is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "scratch: {needed} needed, {left} left of the {capacity} that the plan gave this stream: plan a larger `StreamSpec::scratch` or a smaller prefill chunk"
)]
pub struct ScratchFull {
    /// What was asked, rounded up to 256 bytes.
    pub needed: Bytes,
    /// What is left in this frame.
    pub left: Bytes,
    /// What the plan gave the stack.
    pub capacity: Bytes,
}

impl<'f, P: Place> ScratchFrame<'f, P> {
    /// `len` units of `T` until the frame ends, on a multiple of 256 bytes. The contents are whatever was there.
    ///
    /// # Errors
    /// [`ScratchFull`]; the frame is as it was.
    #[inline]
    pub fn take<T: Plain>(&mut self, len: usize) -> Result<StableSpanMut<'f, T, P>, ScratchFull> {
        let left = self.end - self.top;
        let bytes =
            (len as u64).checked_mul(size_of::<T::Repr>() as u64).and_then(|b| b.checked_next_multiple_of(ALIGN));
        match bytes {
            Some(bytes) if bytes <= left => {
                let span = StableSpanMut::new(self.top, len, (), self.mark);
                self.top += bytes;
                let used = self.top - self.stack.region.base();
                // Not `fetch_max`: one frame at a time writes it, and readers only report.
                if used > self.stack.high_water.load(Ordering::Relaxed) {
                    self.stack.high_water.store(used, Ordering::Relaxed);
                }
                Ok(span)
            }
            _ => Err(self.full(bytes)),
        }
    }

    #[cold]
    fn full(&self, bytes: Option<u64>) -> ScratchFull {
        let needed = bytes.map_or(Bytes::MAX, Bytes::new);
        ScratchFull { needed, left: self.left(), capacity: self.stack.bytes }
    }

    /// Whether nothing was taken from all of `stack`.
    pub(crate) fn is_whole(&self, stack: &ScratchStack) -> bool {
        std::ptr::eq(self.stack, stack) && self.top == stack.region.base()
    }

    /// What is left in this frame.
    pub fn left(&self) -> Bytes {
        Bytes::new(self.end - self.top)
    }

    /// The rest of the stack for a shorter time. Spans taken before stay usable; this frame waits until the nested one and
    /// its spans are gone, and then hands out the same memory again.
    pub fn nested(&mut self) -> ScratchFrame<'_, P> {
        ScratchFrame { stack: self.stack, top: self.top, end: self.end, mark: self.mark, exclusive: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Bytes, Device, Eager, Host, HostBackend,
        backend::{PhaseCell, Region},
        place::Mark,
        record::ScratchStack,
    };
    use std::sync::Arc;

    fn stack(bytes: u64) -> Arc<ScratchStack> {
        let device = Device::new(HostBackend::new(), Bytes::mib(1));
        let region =
            Region::reserve(&device.0, &Arc::new(PhaseCell::new()), "scratch", Bytes::new(bytes), Bytes::new(bytes));
        ScratchStack::new(region.unwrap(), Bytes::new(bytes))
    }

    #[test]
    fn a_nested_frame_gives_its_memory_back() {
        let stack = stack(1024);
        let mut frame = stack.frame(Mark::<Eager<Host>>::new(1, 1));
        let outer = frame.take::<f32>(10).unwrap();
        let first = frame.nested().take::<f32>(64).unwrap().read().widen().addr();
        let second = frame.nested().take::<f32>(64).unwrap().read().widen().addr();
        assert_eq!(first, second);
        assert_eq!(outer.read().widen().addr() + 256, first);
        assert_eq!(stack.high_water(), Bytes::new(512));
    }

    #[test]
    fn asking_past_the_plan_takes_nothing() {
        let stack = stack(1024);
        let mut frame = stack.frame(Mark::<Eager<Host>>::new(1, 1));
        let full = frame.take::<f32>(257).map(drop).unwrap_err();
        assert_eq!((full.needed, full.left), (Bytes::new(1280), Bytes::new(1024)));
        assert!(frame.take::<f32>(usize::MAX).is_err());
        assert!(frame.take::<f32>(256).is_ok());
        assert!(frame.take::<u8>(1).is_err());
    }
}
