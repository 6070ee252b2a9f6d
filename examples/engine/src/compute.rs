//! Where a model is served from: whose memory it is in, what launches need there, and the operations of a pass. Everything
//! around them (the model itself, plan, load, requests, page tables, graphs) is the same code.

use memtier::{
    Bytes, Device, Host, HostBackend, Place, SizeError, Space,
    reserve::{ReserveKey, StartUp, process_resident},
};

use crate::{
    EngineError,
    arch::Arch,
    config::Settings,
    model::ScratchUnits,
    operations::Operations,
    ops::{Cpu, CpuRun},
    weights::GpuWeights,
};

/// A space that models are served from.
pub trait Compute: Space {
    /// What launches need: threads, compiled kernels. A name: clones share it.
    type Ops: Clone + Send + Sync + 'static;
    /// A pass under way: what [`forward`](crate::forward::forward) does its operations on.
    type Run<'p, P: Place<Space = Self> + 'p>: Operations<'p, Self, P>;
    /// Whether its memory is the process's own.
    const ON_HOST: bool;
    /// What the plan keeps for a recorded pass.
    const GRAPH_BYTES: Bytes;
    /// What a start with a reserve file is charged when nobody has measured one yet.
    const ASSUMED_RESERVE: Bytes;

    /// The threads of this process, which convert weights.
    fn cpu(ops: &Self::Ops) -> &Cpu;

    /// The device, of which at most `budget` is taken.
    fn device(ops: &Self::Ops, budget: Bytes) -> Device;

    /// The start whose library reserve is measured, from before anything was taken.
    fn start_up(ops: &Self::Ops) -> StartUp;

    /// What is in use of the memory that is served from, by the account of the system or the driver. `None` where it does not say.
    fn used(ops: &Self::Ops) -> Option<Bytes>;

    /// What nobody has taken of that memory. `None` where it is the process's own, and where the driver does not say.
    fn free(_ops: &Self::Ops) -> Option<Bytes> {
        None
    }

    /// What a library reserve is remembered by: here, with these `libraries`, for a model that is run along this `path`.
    fn reserve_key(ops: &Self::Ops, libraries: &str, path: &str) -> ReserveKey;

    /// What the driver had taken when the device was open.
    fn context(ops: &Self::Ops) -> Bytes;

    /// Allocations that others than the engine's backend have asked a driver for, so far: a sentence where nobody counts. `None`
    /// where there is no driver.
    fn library_allocations(ops: &Self::Ops) -> Option<Result<u64, String>>;

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

    /// Launches of this model with what vendors' libraries have for it, before anything is planned: what a library works in becomes a
    /// part of `arch`. One that is not there, or not wanted, is no error.
    fn with_libraries(ops: Self::Ops, _arch: &mut Arch, _settings: &Settings) -> Self::Ops {
        ops
    }

    /// The vendors' libraries that are used, with their versions, as a library reserve is remembered by; and a sentence for people, who
    /// want to know why one is not.
    fn libraries(_ops: &Self::Ops) -> Option<(String, String)> {
        None
    }

    /// What one pass takes of the scratch stack.
    ///
    /// # Errors
    /// [`SizeError::Overflow`].
    fn scratch(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError>;
}

impl Compute for Host {
    type Ops = Cpu;
    type Run<'p, P: Place<Space = Host> + 'p> = CpuRun<'p, P>;
    const ON_HOST: bool = true;
    const GRAPH_BYTES: Bytes = Bytes::ZERO;
    const ASSUMED_RESERVE: Bytes = Bytes::ZERO;

    fn cpu(ops: &Cpu) -> &Cpu {
        ops
    }

    fn device(_ops: &Cpu, budget: Bytes) -> Device {
        Device::new(HostBackend::new(), budget)
    }

    fn start_up(_ops: &Cpu) -> StartUp {
        // Host memory starts empty with the process.
        StartUp::new(Bytes::ZERO, Bytes::ZERO)
    }

    fn used(_ops: &Cpu) -> Option<Bytes> {
        process_resident()
    }

    fn reserve_key(_ops: &Cpu, libraries: &str, path: &str) -> ReserveKey {
        // No driver stands between a process and its own memory; the system decides what a stack or a heap takes.
        let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        ReserveKey::new("host", system.trim(), libraries, path)
    }

    fn context(_ops: &Cpu) -> Bytes {
        Bytes::ZERO
    }

    fn library_allocations(_ops: &Cpu) -> Option<Result<u64, String>> {
        None
    }

    fn check(settings: &Settings) -> Result<(), EngineError> {
        if settings.batch_invariant {
            let remedy = "the CPU multiplies one row otherwise than many: serve from --device cuda:0, or leave it out"
                .to_owned();
            return Err(EngineError::Setting { name: "batch-invariant", value: "given".to_owned(), remedy });
        }
        if settings.gpu_weights == Some(GpuWeights::Bf16) {
            let remedy = "the CPU keeps weights as they are in the file: leave it out".to_owned();
            return Err(EngineError::Setting { name: "weights", value: "bf16".to_owned(), remedy });
        }
        Ok(())
    }

    fn prepare(arch: Arch) -> Result<Arch, EngineError> {
        Ok(arch)
    }

    fn scratch(arch: &Arch, tokens: usize, picks: usize) -> Result<Bytes, SizeError> {
        ScratchUnits::new(arch, tokens, picks)?.bytes(arch.ropes.len())
    }
}
