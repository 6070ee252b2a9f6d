//! Results that are read while the device goes on.

use std::{fmt, sync::Arc};

use super::{LaunchError, Recorder, Settled, lane::Lane};
use crate::{
    element::Plain,
    engine::Pinned,
    place::{OutsideCapture, Place},
    pool::InFlight,
    span::Input,
};

/// A pinned buffer that a copy from the device is being written into. Nobody sees its contents before the copy is done.
///
/// Dropping it gives the buffer up; its memory stays until the copy is done.
#[must_use = "the results are in it: `take` them with proof that the step is done"]
pub struct ReadBack<T: Plain> {
    /// `None`: taken.
    pinned: Option<Pinned<T>>,
    lane: Arc<Lane>,
    step: u64,
}

impl<T: Plain> ReadBack<T> {
    /// The buffer with the results in it, from a fence behind the step of the copy.
    ///
    /// # Errors
    /// [`InFlight`] with the read-back, when the proof is of another stream or of an earlier step.
    pub fn take(mut self, settled: &Settled) -> Result<Pinned<T>, InFlight<Self>> {
        let done = Arc::ptr_eq(&settled.lane, &self.lane) && settled.step >= self.step;
        match self.pinned.take() {
            Some(pinned) if done => Ok(pinned),
            pinned => {
                self.pinned = pinned;
                Err(InFlight(self))
            }
        }
    }
}

impl<T: Plain> Drop for ReadBack<T> {
    fn drop(&mut self) {
        if let Some(pinned) = &self.pinned {
            self.lane.park(self.step, pinned.region().clone());
        }
    }
}

impl<T: Plain> fmt::Debug for ReadBack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadBack(stream {}, step {})", self.lane.id(), self.step)
    }
}

/// Nothing is read back; the buffer comes back.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct ReadBackError<T: Plain> {
    /// The buffer, as it was.
    pub pinned: Pinned<T>,
    /// Why not.
    #[source]
    pub error: LaunchError,
}

impl<T: Plain> fmt::Debug for ReadBackError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<P: Place> Recorder<P> {
    /// Copies device memory into a pinned buffer, in stream order, and does not wait: the step can go on, and the next one can
    /// replay, while the results of this one travel. With two buffers, results of step `n` are looked at while `n + 1` runs.
    ///
    /// Takes the buffer, and gives it back with proof that the copy is done.
    ///
    /// ```
    /// # use memtier::{Eager, Fence, Host, Input, Pinned, Recorder};
    /// # fn example(
    /// #     on: &Recorder<Eager<Host>>,
    /// #     logits: impl Input<f32, Eager<Host>>,
    /// #     pinned: Pinned<f32>,
    /// #     finish: impl FnOnce() -> Fence,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let late = on.read_back(logits, pinned).map_err(|failed| failed.error)?;
    /// let fence = finish(); // of the step; the next step may begin here
    /// let pinned = late.take(&fence.wait()?).map_err(|_| "another stream's fence")?;
    /// println!("{}", pinned[0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReadBackError`] with the buffer: [`LaunchError::Shape`] when it is shorter than `from`.
    pub fn read_back<T: Plain>(&self, from: impl Input<T, P>, to: Pinned<T>) -> Result<ReadBack<T>, ReadBackError<T>>
    where
        P: OutsideCapture,
    {
        let from = from.input();
        match self.copy_out(from.addr, from.len * size_of::<T::Repr>(), from.stream, &to) {
            Ok(step) => Ok(ReadBack { pinned: Some(to), lane: self.lane().clone(), step }),
            Err(error) => Err(ReadBackError { pinned: to, error }),
        }
    }

    /// Queues the copy, and tells the step.
    fn copy_out<T: Plain>(&self, from: u64, bytes: usize, stream: u32, to: &Pinned<T>) -> Result<u64, LaunchError> {
        self.check(&[stream])?;
        let room = to.len() * size_of::<T::Repr>();
        if room < bytes {
            return Err(LaunchError::Shape { what: "read_back, in bytes", expected: bytes, found: room });
        }
        let _running = self.lane().run()?;
        // SAFETY: `from` came from a view that the caller still holds: committed, and in stream order not being written. The
        // buffer is as long, and nobody sees it before the step of this copy is done: until then it is kept, or parked.
        unsafe { self.lane().queue().read_later(from, to.region().base(), bytes) }?;
        Ok(self.lane().begun())
    }
}
