//! Streams and captures: both are a [`Recorder`] to model code.

use std::{
    any::Any,
    marker::PhantomData,
    mem::size_of_val,
    sync::{Arc, Mutex, PoisonError},
};

use super::{ScratchFull, ScratchStack, lane::Lane};
use crate::{
    backend::{Queue, QueueError},
    element::Element,
    place::{Captured, Eager, OutsideCapture, Place, Uploading},
    space::Space,
    span::{Input, Output, RawSpan},
    units::Bytes,
};

/// One launched operation. Its addresses were checked when it was recorded.
pub(crate) type Op = Box<dyn Fn() -> Result<(), LaunchError> + Send + Sync>;

/// Where launches go: a stream, which runs them, or a capture, which writes them down.
///
/// Model code takes `&Recorder<P>` and serves for both.
pub struct Recorder<P> {
    lane: Arc<Lane>,
    tape: Option<Mutex<Vec<Op>>>,
    place: PhantomData<fn(P) -> P>,
}

/// A device queue with its scratch stack. Work on it runs in order.
///
/// Declared as a plan line, opened while `Planning`, kept for the life of the engine; it is `Send`, and a step borrows it
/// mutably, so one step is open on it at a time.
pub struct Stream<S: Space> {
    pub(crate) eager: Recorder<Eager<S>>,
    pub(crate) uploading: Recorder<Uploading<S>>,
    pub(crate) scratch: Arc<ScratchStack>,
}

/// What a stream costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSpec {
    /// The size of its scratch stack: the most that one forward pass has at a time, each span rounded up to 256 bytes. What a trial run
    /// took is [`ScratchStack::high_water`].
    pub scratch: Bytes,
}

/// The backend's own stream object, lent to its launch wrappers. Marks and waits stay the engine's.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct NativeQueue<'q>(&'q dyn Queue);

impl<'q> NativeQueue<'q> {
    /// The object, to be downcast.
    pub fn native(self) -> &'q dyn Any {
        self.0.native()
    }
}

impl<S: Space> Drop for Stream<S> {
    fn drop(&mut self) {
        // Launches in flight use its scratch. No step is open: it would borrow the stream. A failure is reported where
        // somebody waits for a fence.
        let _ = self.eager.lane.drain();
    }
}

impl<S: Space> Stream<S> {
    pub(crate) fn new(lane: Arc<Lane>, scratch: Arc<ScratchStack>) -> Self {
        Stream { eager: Recorder::running(lane.clone()), uploading: Recorder::running(lane), scratch }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.eager.lane
    }

    /// Its scratch stack, for reports.
    pub fn scratch(&self) -> &ScratchStack {
        &self.scratch
    }
}

impl<P> Recorder<P> {
    fn running(lane: Arc<Lane>) -> Self {
        Recorder { lane, tape: None, place: PhantomData }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl<S: Space> Recorder<Captured<'_, S>> {
    pub(crate) fn writing_down(lane: Arc<Lane>) -> Self {
        Recorder { lane, tape: Some(Mutex::default()), place: PhantomData }
    }

    pub(crate) fn into_tape(self) -> Vec<Op> {
        self.tape.map(|tape| tape.into_inner().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
    }
}

impl<P: Place> Recorder<P> {
    /// Refuses spans of another stream, and launches after the step.
    #[inline]
    pub(crate) fn check(&self, streams: &[u32]) -> Result<(), LaunchError> {
        if self.tape.is_none() && !self.lane.is_open() {
            return Err(LaunchError::StepEnded);
        }
        match streams.iter().find(|stream| **stream != self.lane.id()) {
            Some(other) => Err(LaunchError::WrongStream { launch: self.lane.id(), span: *other }),
            None => Ok(()),
        }
    }

    /// Runs an operation now, or writes it down.
    #[inline]
    pub(crate) fn run_or_write_down(
        &self,
        run: impl Fn() -> Result<(), LaunchError> + Send + Sync + 'static,
    ) -> Result<(), LaunchError> {
        match &self.tape {
            None => {
                let _running = self.lane.run()?;
                run()
            }
            Some(tape) => write_down(tape, run),
        }
    }

    /// Runs `launch` on the queue (or writes it down, in a capture). For the launch wrappers of a backend, which took the
    /// addresses from spans of `streams` and passed the spans' borrows through their own signature.
    ///
    /// # Errors
    /// [`LaunchError::WrongStream`] for a span of another stream, and whatever `launch` returns (in a capture: when it is
    /// baked or replayed).
    #[doc(hidden)]
    #[inline]
    pub fn launch(
        &self,
        streams: &[u32],
        launch: impl Fn(NativeQueue<'_>) -> Result<(), LaunchError> + Send + Sync + 'static,
    ) -> Result<(), LaunchError> {
        self.check(streams)?;
        match &self.tape {
            None => {
                let _running = self.lane.run()?;
                launch(NativeQueue(self.lane.queue()))
            }
            Some(tape) => {
                let lane = self.lane.clone();
                write_down(tape, move || launch(NativeQueue(lane.queue())))
            }
        }
    }

    /// As [`launch`](Self::launch), with something that the launch needs and a recording keeps: loaded code. What runs now only borrows it.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    #[inline]
    pub fn launch_keeping<K: Clone + Send + Sync + 'static>(
        &self,
        streams: &[u32],
        keep: &K,
        launch: impl Fn(NativeQueue<'_>, &K) -> Result<(), LaunchError> + Send + Sync + 'static,
    ) -> Result<(), LaunchError> {
        self.check(streams)?;
        match &self.tape {
            None => {
                let _running = self.lane.run()?;
                launch(NativeQueue(self.lane.queue()), keep)
            }
            Some(tape) => {
                let (lane, keep) = (self.lane.clone(), keep.clone());
                write_down(tape, move || launch(NativeQueue(lane.queue()), &keep))
            }
        }
    }

    /// Copies host values into device memory, in stream order. The slice may go as soon as this returns.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when `from` is longer than `to`; a shorter one writes the first elements.
    #[inline]
    pub fn write<T: Element>(&self, to: &mut impl Output<T, P>, from: &[T::Repr]) -> Result<(), LaunchError>
    where
        P: OutsideCapture,
    {
        self.copy_in::<T>(to.span().output(self), from)
    }

    /// The copy of `write`, and of uploads from staging.
    pub(crate) fn copy_in<T: Element>(&self, to: RawSpan<T>, from: &[T::Repr]) -> Result<(), LaunchError> {
        self.check(&[to.stream])?;
        if from.len() > to.len {
            return Err(LaunchError::Shape { what: "write", expected: to.len, found: from.len() });
        }
        let _running = self.lane.run()?;
        // SAFETY: `to` came from a write view that the caller still holds: committed, at least as long, used by nobody.
        unsafe { self.lane.queue().write(to.addr, bytes_of(from)) }?;
        Ok(())
    }

    /// Waits for everything launched before and copies device memory into host memory.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when `to` is longer than `from`; a shorter one reads the first elements.
    #[inline]
    pub fn read<T: Element>(&self, from: impl Input<T, P>, to: &mut [T::Repr]) -> Result<(), LaunchError>
    where
        P: OutsideCapture,
    {
        let from = from.input();
        self.check(&[from.stream])?;
        if to.len() > from.len {
            return Err(LaunchError::Shape { what: "read", expected: from.len, found: to.len() });
        }
        let _running = self.lane.run()?;
        // SAFETY: `from` came from a view that the caller still holds: committed, at least as long, not being written.
        unsafe { self.lane.queue().read(from.addr, bytes_of_mut(to)) }?;
        Ok(())
    }

    /// Copies one span into another, in stream order: a copy-on-write, a moved row.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when the lengths differ.
    pub fn copy<T: Element>(&self, to: &mut impl Output<T, P>, from: impl Input<T, P>) -> Result<(), LaunchError> {
        let (from, to): (RawSpan<T>, RawSpan<T>) = (from.input(), to.span().output(self));
        self.check(&[from.stream, to.stream])?;
        if from.len != to.len {
            return Err(LaunchError::Shape { what: "copy", expected: to.len, found: from.len });
        }
        let lane = self.lane.clone();
        let bytes = to.len * size_of::<T::Repr>();
        // SAFETY: both are committed and as long as each other; `to` came from `&mut`, so they do not overlap, and the
        // launch (or the graph) keeps them.
        let run = move || unsafe { lane.queue().copy(from.addr, to.addr, bytes) }.map_err(LaunchError::Device);
        self.run_or_write_down(run)
    }
}

/// Out of the way of operations that run now: these are few, those are many.
#[cold]
#[inline(never)]
fn write_down(
    tape: &Mutex<Vec<Op>>,
    run: impl Fn() -> Result<(), LaunchError> + Send + Sync + 'static,
) -> Result<(), LaunchError> {
    tape.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(run));
    Ok(())
}

/// The bytes of plain data.
pub(crate) fn bytes_of<R: Copy>(values: &[R]) -> &[u8] {
    // SAFETY: `R` is the `Repr` of an element (the only callers): plain data without padding, alive as long as `values`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of plain data, to be overwritten.
fn bytes_of_mut<R: Copy>(values: &mut [R]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; any bytes are a value of a `Repr`.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// A launch was refused before it reached the device, or the device failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A span belongs to the scratch or the step of another stream.
    #[error("a span of stream {span} is used on stream {launch}: take it from the step that launches")]
    WrongStream {
        /// The stream of the launch.
        launch: u32,
        /// The stream of the span.
        span: u32,
    },
    /// The step has ended.
    #[error("the step has ended: launch before `finish`, and keep the step as long as its views are used")]
    StepEnded,
    /// An operation's body launches or replays on the stream that runs it.
    #[error("an operation that is running launches on its own stream: launch after it, from the step")]
    Nested,
    /// A span has another number of elements than the operation needs.
    #[error("{what}: {expected} elements expected, {found} found")]
    Shape {
        /// The operation or the argument.
        what: &'static str,
        /// What it needs.
        expected: usize,
        /// What it was given.
        found: usize,
    },
    /// A value that an operation read from device memory points outside of what it indexes.
    #[error("{what} {found} of {limit}")]
    Index {
        /// What it names: a token, a row, a block.
        what: &'static str,
        /// How many there are.
        limit: u64,
        /// What was read.
        found: u64,
    },
    /// An operation cannot do what was asked of it.
    #[error("{what}: {why}")]
    Unsupported {
        /// The operation or the argument.
        what: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// A vendor's library does not do this after all, and nothing was queued. Whoever launched it has taken note: the next time the same launch
    /// goes to other kernels. Only a graph that is being baked says so, since what it wrote down is already the library's; a launch into a stream goes
    /// to other kernels at once.
    #[error("{what}: {why}: record the graph again, and other kernels do it")]
    Refused {
        /// The operation.
        what: &'static str,
        /// What was refused, and in whose words.
        why: String,
    },
    /// The scratch stack is used up.
    #[error(transparent)]
    Scratch(#[from] ScratchFull),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] QueueError),
}
