//! What can go wrong, one line each: the value and the remedy.

use std::path::{Path, PathBuf};

use engine_kernels::KernelError;
use memtier::{
    AcquireBlocksError, AdvanceError, Bytes, CarveError, DrainError, LaunchError, PlanError, QueueError, RecordError,
    ReplayError, RowError, ScratchFull, SizeError, Space, StagingError, StepError,
};
use memtier_model::{DescribeError, GgufError, MetadataError};

use crate::{model::Model, tokenizer::TokenizerError};

/// Everything that loading and serving a model can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model file.
    #[error("{}", of_file(path, source))]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: GgufError,
    },
    /// The model file could not be mapped.
    #[error("{}: cannot map the file: {source}", path.display())]
    Map {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The model is not one that this engine can describe.
    #[error(transparent)]
    Describe(#[from] DescribeError),
    /// A key of the model file.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model wants something that this engine does not do.
    #[error("this engine does not serve {what}: {why}")]
    Unsupported {
        /// What the model wants.
        what: String,
        /// Why it is refused, and what to use instead.
        why: &'static str,
    },
    /// A setting is out of range.
    #[error("{name} is {value}: {remedy}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What to use.
        remedy: String,
    },
    /// The plan was refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan of one of several devices was refused.
    #[error("{device}: {source}")]
    DevicePlan {
        /// Which, and what was to run on it.
        device: String,
        /// The refusal.
        #[source]
        source: PlanError,
    },
    /// The plan fits into its budget, and the budget not into the device: what is planned is taken as requests need it, so it is refused
    /// before anything is.
    #[error(
        "the plan takes {wanted} of the device, of which {free} are free: give it a budget that the device has (--budget {}MiB), smaller \
         --max-batch, --max-seq-len or --kv-type, or end what else is on the device", free.in_mib()
    )]
    DeviceFull {
        /// What the plan takes that is not taken yet, the library reserve included.
        wanted: Bytes,
        /// What nobody has taken.
        free: Bytes,
    },
    /// The reserve file.
    #[error(transparent)]
    Reserve(#[from] memtier::reserve::ReserveError),
    /// A size formula.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Carving.
    #[error(transparent)]
    Carve(#[from] CarveError),
    /// A staging buffer.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The scratch stack.
    #[error(transparent)]
    Scratch(#[from] ScratchFull),
    /// A launch.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A capture.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The device.
    #[error(transparent)]
    Device(#[from] QueueError),
    /// A page table.
    #[error(transparent)]
    Row(#[from] RowError),
    /// Progress of a request.
    #[error(transparent)]
    Advance(#[from] AdvanceError),
    /// The pool is full: a capacity error, try again when a request has ended.
    #[error(transparent)]
    Capacity(#[from] AcquireBlocksError),
    /// Sequences that run past their planned length share blocks with each other, and none of them can go on.
    #[error("every sequence has its {blocks} and wants one more, and nobody can end: end one, or raise --budget")]
    Stalled {
        /// What the last of them holds.
        blocks: memtier::Blocks,
    },
    /// A block has no address.
    #[error(transparent)]
    Block(#[from] memtier::BlockError),
    /// The prefix cache.
    #[error(transparent)]
    Prefix(#[from] memtier::PrefixCacheError),
    /// The second tier of the prefix cache.
    #[error(transparent)]
    Tier(#[from] memtier::TierError),
    /// Saved prefixes.
    #[error("saved prefixes: {0}")]
    Store(Box<memtier_store::StoreError>),
    /// A block that is shared could not be copied before it is written.
    #[error(transparent)]
    Own(#[from] memtier::OwnError),
    /// A kernel outside of a launch.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Weights that cannot be tiled for a GPU.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Tile(#[from] memtier_cuda::kernels::TileError),
    /// A prompt does not fit.
    #[error(
        "the prompt has {tokens} tokens and a sequence holds {most}: shorten it, or raise --max-seq-len (the model was trained on {trained})"
    )]
    PromptTooLong {
        /// Its length.
        tokens: usize,
        /// `max_seq_len`.
        most: usize,
        /// The model's own context length.
        trained: u32,
    },
    /// A prompt has no tokens.
    #[error("the prompt is empty: give at least one character")]
    EmptyPrompt,
    /// All rows of the batch are taken.
    #[error("all {rows} sequences of the batch are taken: wait for one to end, or raise --max-batch")]
    BatchFull {
        /// `max_batch`.
        rows: usize,
    },
    /// There is no such sequence.
    #[error("there is no sequence {row}: it has ended, or was never admitted")]
    NoSequence {
        /// What was asked for.
        row: usize,
    },
    /// A file of the memory policy.
    #[error("{}: {what}", path.display())]
    Policy {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A request was not admitted.
    #[error("the request was refused: {0}")]
    Refused(#[from] memtier::admission::Refusal),
    /// The host would not survive the load.
    #[error("the model is not loaded: {0}")]
    Load(#[from] memtier::admission::LoadRefusal),
    /// A CUDA device was not opened.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] memtier_cuda::OpenError),
    /// The CUDA kernels were not loaded.
    #[cfg(feature = "cuda")]
    #[error("{0}{place}", place = place_of_kernels(.0))]
    CudaKernels(#[from] memtier_cuda::KernelError),
    /// Requests still run.
    #[error("{0}")]
    Busy(String),
}

/// Where the engine looks for kernels, for errors that are about files.
#[cfg(feature = "cuda")]
fn place_of_kernels(error: &memtier_cuda::KernelError) -> &'static str {
    use memtier_cuda::KernelError::{Driver, Instruction};
    match error {
        Driver(_) | Instruction { .. } => "",
        _ => " (kernels are looked for in the folder MEMTIER_KERNELS, else in `kernels` beside the program)",
    }
}

impl From<memtier_store::StoreError> for EngineError {
    fn from(error: memtier_store::StoreError) -> Self {
        EngineError::Store(Box::new(error))
    }
}

impl<S: Space> From<DrainError<Model<S>>> for EngineError {
    fn from(error: DrainError<Model<S>>) -> Self {
        EngineError::Busy(error.to_string())
    }
}

/// What is wrong with a model file, which some errors name themselves.
fn of_file(path: &Path, source: &GgufError) -> String {
    match source {
        GgufError::Open { .. } => source.to_string(),
        _ => format!("{}: {source}", path.display()),
    }
}
