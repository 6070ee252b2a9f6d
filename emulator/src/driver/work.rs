//! What a stream does: copies, kernels, graphs. Arguments are held from when it was queued or captured.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use cudarc::driver::sys::CUresult as R;

use super::{
    calls::Driver,
    error::{Failure, Outcome},
    launches::Kernel,
};

/// Which sides of a copy are the device's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sides {
    In,
    Out,
    Inside,
}

/// One thing to do.
#[derive(Clone)]
pub(super) enum Work {
    /// Nothing but to be behind something.
    Nothing,
    /// Bytes from one address to another.
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
        sides: Sides,
    },
    /// Bytes that were taken from the caller when it asked.
    Put {
        to: u64,
        from: Arc<[u8]>,
    },
    Kernel(Arc<Kernel>),
    Graph(Arc<Vec<Work>>),
}

/// Whether a piece of work is done.
#[derive(Default)]
pub(super) struct Mark(AtomicBool);

impl Mark {
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Under the lock of the state, so that nobody who waits misses it.
    pub(super) fn settle(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Work {
    /// Does it, on a stream's thread.
    pub(super) fn run(&self, driver: &Driver) -> Outcome {
        match self {
            Work::Nothing => Ok(()),
            Work::Copy { to, from, bytes, sides } => copy(driver, *to, *from, *bytes, *sides),
            Work::Put { to, from } => {
                let bytes = from.len() as u64;
                reached(driver, "copy in", *to, bytes, true)?;
                let to = std::ptr::with_exposed_provenance_mut::<u8>(*to as usize);
                // SAFETY: the device reaches so many bytes there, and what it reached when this began stays until it is done.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
            Work::Kernel(kernel) => kernel.run(driver),
            Work::Graph(nodes) => nodes.iter().try_for_each(|node| node.run(driver)),
        }
    }
}

/// Says where it went wrong, as a device cannot.
fn reached(driver: &Driver, what: &str, at: u64, bytes: u64, write: bool) -> Outcome {
    if driver.space.reaches(at, bytes, write) {
        return Ok(());
    }
    eprintln!("memtier emulated GPU: {what}: {bytes} bytes at {at:#x} are not there");
    Err(Failure::from(R::CUDA_ERROR_ILLEGAL_ADDRESS))
}

fn copy(driver: &Driver, to: u64, from: u64, bytes: u64, sides: Sides) -> Outcome {
    if sides != Sides::In {
        reached(driver, "copy, source", from, bytes, false)?;
    }
    if sides != Sides::Out {
        reached(driver, "copy, destination", to, bytes, true)?;
    }
    let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: the device's sides are there, and stay until this is done; a host's side is, by the caller of the driver.
    unsafe { std::ptr::copy(from, to, bytes as usize) };
    Ok(())
}
