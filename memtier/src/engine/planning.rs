//! Planning: carving, streams, pinned memory, uploads.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    ptr, slice,
    sync::Arc,
};

use super::{
    CarvesStorage, Engine, OpensMemory, Phase, Planning, Serving, StagesUploads, StartsServing, StepError, Token,
};
use crate::{
    backend::{PhaseName, QueueError, Region, Tag},
    bundle::{Bundle, Lines},
    element::{Element, Plain},
    layout::SizeError,
    line::{CarveError, Carver, Check, Line, Want, paged},
    part::Declare,
    place::{Beside, Cx, Fits, Mark, Uploading},
    plan::{self, Demand},
    record::{Lane, LaunchError, Recorder, ScratchFrame, ScratchStack, Stream, StreamSpec},
    space::{Host, Space},
    span::{RawSpan, StableSpanMut},
    units::Bytes,
};

impl<Ph: Phase> Engine<Ph> {
    /// Carves every line of a bundle, which the engine owns from here on.
    ///
    /// # Errors
    /// [`CarveFailed`] with the engine and the lines: all lines are looked at before the first is used up.
    pub fn carve<L: Lines>(self, lines: L) -> Result<Engine<Planning<L::Bundle>>, CarveFailed<L>>
    where
        Ph: CarvesStorage,
    {
        let mut engine = self.into_phase(|phase| phase.into_planning(Token(())));
        let Planning { grants, .. } = &mut engine.phase;
        if let Err(error) = lines.check(&mut Check { plan: engine.core.plan, grants, seen: Vec::new() }) {
            return Err(CarveFailed { error, lines, engine: Box::new(engine) });
        }
        let owned = L::Bundle::carve(lines, &mut Carver { grants });
        Ok(engine.into_phase(|Planning { graphs, plan, grants, .. }| Planning { owned, graphs, plan, grants }))
    }

    /// Opens a declared stream with its scratch stack.
    ///
    /// # Errors
    /// [`CarveError`]; a line of this plan is used up all the same.
    pub fn open_stream<S: Space>(&mut self, line: Line<Stream<S>>) -> Result<Stream<S>, CarveError>
    where
        Ph: OpensMemory,
    {
        let (spec, mut ground) = self.claim(line)?;
        let lot = ground.take();
        let tag = Tag { name: "stream", phase: PhaseName::Planning, pinned: false };
        let queue = lot.region.device().open_queue(tag)?;
        let scratch = ScratchStack::new(lot.region, spec.scratch);
        self.core.scratch.retain(|stack| stack.strong_count() > 0);
        self.core.scratch.push(Arc::downgrade(&scratch));
        Ok(Stream::new(Lane::new(self.core.engine, queue), scratch))
    }

    /// Opens a declared page-locked host buffer, for the life of the process.
    ///
    /// # Errors
    /// [`CarveError`].
    pub fn pin<T: Plain>(&mut self, line: Line<Pinned<T>>) -> Result<Pinned<T>, CarveError>
    where
        Ph: OpensMemory,
    {
        let (spec, mut ground) = self.claim(line)?;
        Ok(Pinned { region: ground.take().region, len: spec.len, element: PhantomData })
    }

    fn claim<T: Declare>(&mut self, line: Line<T>) -> Result<(T::Priced, crate::line::Ground), CarveError>
    where
        Ph: OpensMemory,
    {
        let plan = self.core.plan;
        let grants = self.phase.open(Token(())).0;
        Check { plan, grants, seen: Vec::new() }.line(&line)?;
        match line.want {
            Want::New { index, priced } => Ok((priced, Carver { grants }.claim(index))),
            // Only parts can be kept, and those are carved.
            _ => Err(CarveError::ForeignLine { name: T::LABEL }),
        }
    }

    /// Write views of everything and host staging, for uploads on `stream`. All of it borrows the engine, so none of it
    /// reaches `serve` (row f).
    ///
    /// # Errors
    /// [`StepError`].
    pub fn load<'s, B: Bundle>(&'s mut self, stream: &'s mut Stream<B::Space>) -> Result<Load<'s, B>, StepError>
    where
        Ph: StagesUploads<B>,
    {
        let clock = self.next_step(stream)?;
        let bundle = self.phase.target(Token(()));
        self.lanes.enter(stream.lane(), clock, bundle)?;
        let mark = Mark::new(stream.lane().id(), clock);
        let scratch = stream.scratch.frame(mark);
        Ok(Load {
            buffers: bundle.load_view(&Cx::new(mark)),
            on: &stream.uploading,
            scratch,
            staging: Staging(PhantomData),
        })
    }

    /// Waits for the uploads and freezes the memory map.
    ///
    /// # Errors
    /// [`QueueError`] when the device failed while loading; the engine is gone, with everything in it.
    pub fn serve<B: Bundle>(self) -> Result<Engine<Serving<B>>, QueueError>
    where
        Ph: StartsServing<B>,
    {
        self.lanes.drain()?;
        let engine = self.into_phase(|phase| phase.into_carved(Token(())));
        Ok(engine.into_phase(|Planning { graphs, owned, plan, grants }| {
            let names = plan.lines();
            let unclaimed = grants.unclaimed().filter_map(|index| Some(names.get(index)?.name.to_string())).collect();
            Serving { graphs, owned, plan, unclaimed }
        }))
    }
}

/// Carving failed; nothing was carved.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct CarveFailed<L> {
    /// What is wrong.
    #[source]
    pub error: CarveError,
    /// The lines, none of them used up.
    pub lines: L,
    /// The engine, as it was.
    pub engine: Box<Engine<Planning>>,
}

impl<L> fmt::Debug for CarveFailed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

// SAFETY: the demand is the stack's own size.
unsafe impl<S: Space> Declare for Stream<S> {
    type Spec = StreamSpec;
    type Priced = StreamSpec;
    const LABEL: &'static str = "stream";

    fn price(spec: &StreamSpec, add: &mut dyn FnMut(Demand)) -> Result<StreamSpec, SizeError> {
        let scratch = paged(spec.scratch).map_err(|_| SizeError::Overflow { field: "scratch" })?;
        add(Demand::bytes("forward scratch", plan::Tier::ForwardScratch, S::NAME, scratch));
        Ok(StreamSpec { scratch })
    }
}

// ------------------------------------------------------------------------------------------------------ pinned

/// T5b: page-locked host memory, for the life of the process. Derefs to a slice.
pub struct Pinned<T: Plain> {
    region: Arc<Region>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// The size of a [`Pinned`] buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedSpec {
    /// Stored units: elements, or blocks of a block type.
    pub len: usize,
}

// SAFETY: the demand is the buffer's own size.
unsafe impl<T: Plain> Declare for Pinned<T> {
    type Spec = PinnedSpec;
    type Priced = PinnedSpec;
    const LABEL: &'static str = "pinned buffer";

    fn price(spec: &PinnedSpec, add: &mut dyn FnMut(Demand)) -> Result<PinnedSpec, SizeError> {
        if spec.len == 0 {
            return Err(SizeError::Zero { field: "pinned buffer" });
        }
        let bytes = Bytes::new(size_of::<T::Repr>() as u64).times(spec.len as u64).and_then(paged);
        let bytes = bytes.map_err(|_| SizeError::Overflow { field: "pinned buffer" })?;
        add(Demand::bytes("pinned buffer", plan::Tier::HostPinned, Host::NAME, bytes));
        Ok(*spec)
    }
}

impl<T: Plain> Pinned<T> {
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl<T: Plain> Deref for Pinned<T> {
    type Target = [T::Repr];

    fn deref(&self) -> &[T::Repr] {
        // SAFETY: the region is this buffer's own, in host memory, committed for `len` units; any bytes are values.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(self.region.base() as usize), self.len) }
    }
}
impl<T: Plain> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T::Repr] {
        // SAFETY: as for reading; `&mut self` is the only way to it.
        unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(self.region.base() as usize), self.len) }
    }
}

// --------------------------------------------------------------------------------------------------- uploading

/// What a loader works with: write views of everything, also of model-resident storage, and host staging.
pub struct Load<'s, B: Bundle> {
    /// The bundle's write views.
    pub buffers: B::LoadView<'s, Uploading<B::Space>>,
    /// Where uploads and load-time kernels go.
    pub on: &'s Recorder<Uploading<B::Space>>,
    /// The stream's scratch.
    pub scratch: ScratchFrame<'s, Uploading<B::Space>>,
    /// Host memory to read files into.
    pub staging: Staging<'s>,
}

/// Host memory for uploads. Lives while the engine is `Planning` (T5a, row f).
pub struct Staging<'p>(PhantomData<&'p ()>);

/// One staged tensor: fill it like a slice, then upload it. Use it again for the next tensor of at most this size.
pub struct StagingBuf<'p, T: Element> {
    host: Vec<T::Repr>,
    planning: PhantomData<&'p ()>,
}

/// The host has no memory for a staging buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no host memory for a staging buffer of {len} units of `{element}`: stage the tensor in pieces")]
pub struct StagingError {
    /// What was asked.
    pub len: usize,
    /// Of what.
    pub element: &'static str,
}

impl<'p> Staging<'p> {
    /// A buffer of `len` units, zeroed.
    ///
    /// # Errors
    /// [`StagingError`] when the host has not that much.
    pub fn take<T: Element>(&self, len: usize) -> Result<StagingBuf<'p, T>, StagingError> {
        let mut host: Vec<T::Repr> = Vec::new();
        host.try_reserve_exact(len).map_err(|_| StagingError { len, element: T::NAME })?;
        // SAFETY: `len` units are reserved, and zero bytes are a value of every `Repr`.
        unsafe {
            ptr::write_bytes(host.as_mut_ptr(), 0, len);
            host.set_len(len);
        }
        Ok(StagingBuf { host, planning: PhantomData })
    }
}

// Keeps the borrow alive to the end of the scope, so that a forgotten staging object is an error too.
impl Drop for Staging<'_> {
    fn drop(&mut self) {}
}

impl<T: Element> StagingBuf<'_, T> {
    /// Copies the first units of the buffer, as many as the field has, into a field, in stream order. On a device the buffer
    /// may be filled again as soon as this returns.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when the buffer is shorter than the field.
    pub fn upload<S: Space>(
        &self,
        on: &Recorder<Uploading<S>>,
        to: &mut StableSpanMut<'_, T, impl Fits<Uploading<S>>>,
    ) -> Result<(), LaunchError> {
        let from = self.host.get(..to.len()).ok_or(LaunchError::Shape {
            what: "upload",
            expected: to.len(),
            found: self.host.len(),
        })?;
        on.copy_in::<T>(to.output(on), from)
    }

    /// As [`upload`](StagingBuf::upload), into a field in the host memory beside the bundle's: weights of layers that are offloaded.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when the buffer is shorter than the field.
    pub fn upload_beside<S: Space>(
        &self,
        on: &Recorder<Uploading<S>>,
        to: &mut StableSpanMut<'_, T, Beside<Uploading<S>>>,
    ) -> Result<(), LaunchError> {
        let (expected, found) = (to.len(), self.host.len());
        let from = self.host.get(..expected).ok_or(LaunchError::Shape { what: "upload", expected, found })?;
        on.copy_beside(to.raw_mut(), from)
    }

    /// Copies the first `units` units of the buffer to unit `at` of a field: a tensor that is staged in pieces.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when the buffer or the field ends before.
    pub fn upload_part<S: Space>(
        &self,
        on: &Recorder<Uploading<S>>,
        to: &mut StableSpanMut<'_, T, impl Fits<Uploading<S>>>,
        at: usize,
        units: usize,
    ) -> Result<(), LaunchError> {
        let (found, expected) = (self.host.len(), to.len());
        let from = self.host.get(..units).ok_or(LaunchError::Shape { what: "upload", expected: units, found })?;
        let to: RawSpan<T> = to.output(on);
        let to = at.checked_add(units).and_then(|end| to.range(at..end));
        on.copy_in::<T>(to.ok_or(LaunchError::Shape { what: "upload", expected, found: units })?, from)
    }
}

impl<T: Element> Deref for StagingBuf<'_, T> {
    type Target = [T::Repr];

    fn deref(&self) -> &[T::Repr] {
        &self.host
    }
}
impl<T: Element> DerefMut for StagingBuf<'_, T> {
    fn deref_mut(&mut self) -> &mut [T::Repr] {
        &mut self.host
    }
}
