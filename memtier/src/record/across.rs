//! Copies between a device's memory and the host memory beside it: what a bundle over two spaces is used through.

use super::{LaunchError, Recorder, bytes_of};
use crate::{
    element::Element,
    place::{Place, Reached},
    span::{RawSpan, StableSpan, StableSpanMut},
};

impl<P: Place> Recorder<P> {
    /// Copies one span into another, in stream order, where one of them may be in the host memory beside the stream's: a block that is
    /// spilled or comes back, a layer that is brought over. Between two spans of the stream's own memory it is
    /// [`copy`](Recorder::copy).
    ///
    /// ```
    /// # use memtier::{BlockPool, BlockError, Cuda, Eager, Engine, GlobalKv, Host, Serving, Stream, Ticket, graph_captured};
    /// #[graph_captured]
    /// pub struct Model {
    ///     pub kv: BlockPool<GlobalKv<f32>, Cuda>,
    ///     pub cold: BlockPool<GlobalKv<f32>, Host>,
    /// }
    ///
    /// # fn example(
    /// #     engine: &mut Engine<Serving<Model>>,
    /// #     stream: &mut Stream<Cuda>,
    /// #     hot: &Ticket<GlobalKv<f32>>,
    /// #     kept: &mut Ticket<GlobalKv<f32>>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut step = engine.step(stream)?;
    /// let ModelView { kv, cold, .. } = &mut step.buffers;
    /// step.on.copy_across(&mut cold.block_mut(kept, 0)?, kv.block(hot, 0)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when the lengths differ; [`LaunchError::Unsupported`] when both are beside.
    pub fn copy_across<T: Element, To: Reached<P>, From: Reached<P>>(
        &self,
        to: &mut StableSpanMut<'_, T, To>,
        from: StableSpan<'_, T, From>,
    ) -> Result<(), LaunchError> {
        let (from, to) = (from.raw(), to.raw_mut());
        self.check(&[from.stream, to.stream])?;
        if from.len != to.len {
            return Err(LaunchError::Shape { what: "copy_across", expected: to.len, found: from.len });
        }
        if From::BESIDE && To::BESIDE {
            let why = "both spans are in host memory, which no stream of this bundle computes with: copy from or to the device";
            return Err(LaunchError::Unsupported { what: "copy_across", why });
        }
        let (lane, bytes) = (self.lane().clone(), to.len * size_of::<T::Repr>());
        let (from, to) = (from.addr, to.addr);
        // SAFETY (all three): both are committed and as long as each other; `to` came from `&mut`, so they do not overlap, and the
        // launch (or the graph) keeps them. A span beside is in host memory, and only its bundle's streams, one behind the other,
        // are given it: a part is viewed with the place of its bundle.
        self.run_or_write_down(move || {
            let queue = lane.queue();
            let copied = match (From::BESIDE, To::BESIDE) {
                // SAFETY: see above.
                (true, _) => unsafe { queue.copy_in(from, to, bytes) },
                // SAFETY: see above.
                (_, true) => unsafe { queue.copy_out(from, to, bytes) },
                // SAFETY: see above.
                (false, false) => unsafe { queue.copy(from, to, bytes) },
            };
            copied.map_err(LaunchError::Device)
        })
    }

    /// Copies host values into host memory beside the stream's.
    pub(crate) fn copy_beside<T: Element>(&self, to: RawSpan<T>, from: &[T::Repr]) -> Result<(), LaunchError> {
        self.check(&[to.stream])?;
        if from.len() > to.len {
            return Err(LaunchError::Shape { what: "write", expected: to.len, found: from.len() });
        }
        let _running = self.lane().run()?;
        // SAFETY: `to` came from a write view that the caller still holds: host memory, committed, at least as long, and used by
        // earlier work of this stream only.
        unsafe { self.lane().queue().write_beside(to.addr, bytes_of(from)) }?;
        Ok(())
    }
}
