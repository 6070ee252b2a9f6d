//! Where a model is served from: whose memory it is in, what launches need there, and the forward pass. Everything around it
//! (plan, load, requests, page tables, graphs) is the same code.

use memtier::{
    Bytes, Device, Host, HostBackend, LaunchError, Place, Recorder, ScratchFrame, SizeError, Space, StableSpan,
    StableSpanMut,
};

use crate::{
    EngineError,
    arch::Arch,
    config::Settings,
    forward::{self, Enter, Pass},
    model::{ModelView, ScratchUnits},
    ops::Cpu,
};

/// Sees the residual stream behind a layer.
pub type See<'e, P> = &'e mut dyn FnMut(usize, StableSpan<'_, f32, P>) -> Result<(), LaunchError>;

/// A space that models are served from.
pub trait Compute: Space {
    /// What launches need: threads, compiled kernels. A name: clones share it.
    type Ops: Clone + Send + Sync + 'static;
    /// Whether its memory is the process's own.
    const ON_HOST: bool;
    /// What the plan keeps for a recorded pass.
    const GRAPH_BYTES: Bytes;

    /// The threads of this process, which convert weights.
    fn cpu(ops: &Self::Ops) -> &Cpu;

    /// The device, of which at most `budget` is taken.
    fn device(ops: &Self::Ops, budget: Bytes) -> Device;

    /// Refuses settings that are not served here.
    ///
    /// # Errors
    /// [`EngineError::Setting`].
    fn check(settings: &Settings) -> Result<(), EngineError>;

    /// The model as it is stored here.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] names what there are no kernels for.
    fn prepare(arch: Arch) -> Result<Arch, EngineError>;

    /// What one pass takes of the scratch stack.
    ///
    /// # Errors
    /// [`SizeError::Overflow`].
    fn scratch(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError>;

    /// Runs one pass, eager or captured: see [`forward`](forward::forward).
    ///
    /// # Errors
    /// [`LaunchError`].
    #[allow(clippy::too_many_arguments, reason = "a step's parts, the model, and what comes out")]
    fn forward<P: Place<Space = Self>>(
        ops: &Self::Ops,
        arch: &Arch,
        pass: Pass,
        view: &mut ModelView<'_, P>,
        on: &Recorder<P>,
        scratch: ScratchFrame<'_, P>,
        logits: &mut StableSpanMut<'_, f32, P>,
        enter: Enter<'_, P>,
        see: See<'_, P>,
    ) -> Result<(), LaunchError>;
}

impl Compute for Host {
    type Ops = Cpu;
    const ON_HOST: bool = true;
    const GRAPH_BYTES: Bytes = Bytes::ZERO;

    fn cpu(ops: &Cpu) -> &Cpu {
        ops
    }

    fn device(_ops: &Cpu, budget: Bytes) -> Device {
        Device::new(HostBackend::new(), budget)
    }

    fn check(_settings: &Settings) -> Result<(), EngineError> {
        Ok(())
    }

    fn prepare(arch: Arch) -> Result<Arch, EngineError> {
        Ok(arch)
    }

    fn scratch(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError> {
        ScratchUnits::new(arch, tokens, picks)?.bytes(arch.ropes.len())
    }

    fn forward<P: Place<Space = Host>>(
        ops: &Cpu,
        arch: &Arch,
        pass: Pass,
        view: &mut ModelView<'_, P>,
        on: &Recorder<P>,
        scratch: ScratchFrame<'_, P>,
        logits: &mut StableSpanMut<'_, f32, P>,
        enter: Enter<'_, P>,
        see: See<'_, P>,
    ) -> Result<(), LaunchError> {
        forward::forward(ops, arch, pass, view, on, scratch, logits, enter, see)
    }
}
