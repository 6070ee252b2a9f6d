//! One launch of a kernel.

use super::{Fault, Function, Module, exec};

/// Which addresses of the device are there. Addresses of the device are addresses of this process: after a check the
/// interpreter reads and writes through them, from several threads at once.
pub trait Memory: Sync {
    /// The allocation that holds these bytes: `(first address, bytes, whether it may be written)`; at least the bytes asked for.
    /// The interpreter remembers the answer until the launch ends. `None`: they are not all there.
    fn range(&self, address: u64, bytes: usize) -> Option<(u64, u64, bool)>;
}

/// What is checked, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Look for races in shared memory: `MEMTIER_EMULATOR_RACECHECK=1`.
    pub racecheck: bool,
    /// Instructions a block may run (one a warp), before it counts as endless.
    pub steps: u64,
    /// Threads of this process that run blocks.
    pub workers: usize,
}

impl Options {
    /// From the environment.
    pub fn from_env() -> Self {
        Self {
            racecheck: std::env::var_os("MEMTIER_EMULATOR_RACECHECK").is_some_and(|it| it == "1"),
            steps: 4_000_000_000,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A launch: its shape and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of shared memory beside what the kernel declares.
    pub dynamic_shared: u32,
    /// Its parameters, laid out as [`Function::params`] says.
    pub params: &'a [u8],
    /// Where each of [`Module::globals`] lies.
    pub globals: &'a [u64],
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions, one for each warp that ran it.
    pub instructions: u64,
    /// The same, one for each thread.
    pub lanes: u64,
    /// Barriers of blocks that were passed.
    pub barriers: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.lanes += other.lanes;
        self.barriers += other.barriers;
    }
}

/// Runs a kernel to its end.
///
/// # Errors
///
/// The first fault that a thread met. Other blocks may have written what they write.
///
/// # Safety
///
/// What `memory` says is there must stay so until this returns, and be read and written by nobody but kernels.
pub unsafe fn run(
    module: &Module,
    function: &Function,
    launch: &Launch<'_>,
    memory: &dyn Memory,
    options: &Options,
) -> Result<Counts, Fault> {
    exec::run(module, function, launch, memory, options)
}
