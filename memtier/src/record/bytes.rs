//! Spans as bytes: what a store saves and loads.

use super::{LaunchError, Recorder};
use crate::{
    element::Plain,
    place::{Fits, OutsideCapture, Place},
    span::{Input, RawSpan, StableSpanMut},
};

impl<P: Place> Recorder<P> {
    /// Waits for everything launched before and copies a span into host memory, as bytes.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when `to` has another number of bytes.
    pub fn read_bytes<T: Plain>(&self, from: impl Input<T, P>, to: &mut [u8]) -> Result<(), LaunchError>
    where
        P: OutsideCapture,
    {
        let from = from.input();
        self.check_bytes::<T>("read_bytes", &from, to.len())?;
        let _running = self.lane().run()?;
        // SAFETY: `from` came from a view that the caller still holds: committed, as long as `to`, not being written.
        unsafe { self.lane().queue().read(from.addr, to) }?;
        Ok(())
    }

    /// Copies bytes from host memory into a span, in stream order: what [`read_bytes`](Recorder::read_bytes) gave. The slice may go as
    /// soon as this returns.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when `from` has another number of bytes.
    pub fn write_bytes<T: Plain>(
        &self,
        to: &mut StableSpanMut<'_, T, impl Fits<P>>,
        from: &[u8],
    ) -> Result<(), LaunchError>
    where
        P: OutsideCapture,
    {
        let to: RawSpan<T> = to.output(self);
        self.check_bytes::<T>("write_bytes", &to, from.len())?;
        let _running = self.lane().run()?;
        // SAFETY: `to` came from a write view that the caller still holds: committed, as long as `from`, used by nobody. Any bytes
        // are values of a plain element.
        unsafe { self.lane().queue().write(to.addr, from) }?;
        Ok(())
    }

    fn check_bytes<T: Plain>(&self, what: &'static str, span: &RawSpan<T>, bytes: usize) -> Result<(), LaunchError> {
        self.check(&[span.stream])?;
        let expected = span.len * size_of::<T::Repr>();
        if bytes == expected { Ok(()) } else { Err(LaunchError::Shape { what, expected, found: bytes }) }
    }
}
