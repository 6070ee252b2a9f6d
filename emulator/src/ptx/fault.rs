//! What can be wrong: with a text, and with a launch.

use std::fmt;

/// A text that is not PTX, or PTX that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: `{text}`")]
pub struct PtxError {
    /// The line of the text, from one.
    pub line: u32,
    /// What is wrong with it.
    pub what: String,
    /// The statement.
    pub text: String,
}

/// Why a launch stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Bytes that no allocation holds, or that may not be written.
    Address {
        /// `global`, `shared`, `local` or `param`.
        space: &'static str,
        /// The address, an offset outside global memory.
        address: u64,
        /// Bytes of the access.
        bytes: usize,
        /// Whether it was to write.
        write: bool,
    },
    /// An address that is not a multiple of the size of the access.
    Misaligned {
        /// `global`, `shared`, `local` or `param`.
        space: &'static str,
        /// The address.
        address: u64,
        /// What it must be a multiple of.
        align: usize,
    },
    /// Shared memory read before anybody wrote it.
    Uninitialised {
        /// The offset in the block's shared memory.
        address: u64,
    },
    /// Threads of a block wait for others that never come.
    Deadlock(String),
    /// Two threads of a block touch the same shared memory without a barrier between them, and one writes.
    Race(String),
    /// The launch ran longer than its limit of instructions.
    Steps(u64),
    /// A launch that does not fit the kernel or the device.
    Launch(String),
    /// An instruction that was run in a way that PTX forbids.
    Instruction(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { space, address, bytes, write } => {
                let verb = if *write { "writes" } else { "reads" };
                write!(f, "{verb} {bytes} bytes at {address:#x} of {space} memory, which are not there")
            }
            Self::Misaligned { space, address, align } => {
                write!(f, "address {address:#x} of {space} memory is not a multiple of {align}")
            }
            Self::Uninitialised { address } => write!(f, "reads shared memory at {address:#x} that nobody wrote"),
            Self::Deadlock(what) => write!(f, "deadlock: {what}"),
            Self::Race(what) => write!(f, "race: {what}"),
            Self::Steps(limit) => write!(f, "more than {limit} instructions: a loop without an end?"),
            Self::Launch(what) | Self::Instruction(what) => f.write_str(what),
        }
    }
}

/// A launch that stopped: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}, block {block:?}, thread {thread:?}, {place}: {trouble}")]
pub struct Fault {
    /// The kernel.
    pub kernel: String,
    /// `blockIdx`.
    pub block: [u32; 3],
    /// `threadIdx` of the first thread that did it.
    pub thread: [u32; 3],
    /// The line of the PTX, with its text, and the line of the source where the PTX tells it.
    pub place: String,
    /// What happened.
    pub trouble: Trouble,
}
