//! CPU operations over spans: each checks its spans, then runs a kernel over slices.
//!
//! Every function takes the recorder it launches on and spans of the same place; outputs are `&mut`. The same functions run
//! eagerly and inside a capture.

mod attention;
mod linear;
mod low;
mod norm;
mod position;
mod ring;
mod run;
mod sample;

pub use attention::{KvLayer, Look, MAX_ROWS, attend, kv_write};
pub use linear::{Activations, embed, gather, project, project_gated, project_qkv, quantize};
pub use low::{low_attend, low_write};
pub use norm::{head_norm, norm, residual_norm};
pub use position::{Rope, angles, angles_for_sinks, copy, rotate};
pub use ring::{ring_attend, ring_write};
pub use run::CpuRun;
pub use sample::{sample, softcap};

use std::sync::Arc;

use engine_kernels::{Isa, KernelError, Threads};
use memtier::LaunchError;

/// What CPU operations run on: a pool of threads and the instruction set. A name: clones share the threads.
#[derive(Clone)]
pub struct Cpu {
    threads: Arc<Threads>,
    isa: Isa,
}

impl Cpu {
    /// `threads` threads, the caller among them.
    ///
    /// # Errors
    /// [`KernelError::Threads`] for none or absurdly many.
    pub fn new(threads: usize) -> Result<Self, KernelError> {
        Ok(Cpu { threads: Arc::new(Threads::new(threads)?), isa: Isa::detect() })
    }

    /// How many threads.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The pool itself, for what happens outside of launches (packing weights).
    pub fn pool(&self) -> &Threads {
        &self.threads
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

/// A kernel's refusal as a launch's.
fn launch(error: KernelError) -> LaunchError {
    match error {
        KernelError::Shape { what, expected, found } => {
            LaunchError::Shape { what, expected: expected as usize, found: found as usize }
        }
        KernelError::Index { what, limit, found } => LaunchError::Index { what, limit, found },
        KernelError::Overflow { what } => LaunchError::Unsupported { what, why: "its size overflows" },
        _ => LaunchError::Unsupported { what: "kernel", why: "it refused its arguments" },
    }
}
