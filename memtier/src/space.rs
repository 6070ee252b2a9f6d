//! Spaces: who can dereference an address.

use crate::sealed::Sealed;

/// A kind of memory.
pub trait Space: Sealed + Copy + Send + Sync + 'static {
    /// The name in reports.
    const NAME: &'static str;
}

/// Memory that CPU ops read and write.
#[derive(Clone, Copy, Debug)]
pub enum Host {}

/// Memory that CUDA kernels read and write.
#[derive(Clone, Copy, Debug)]
pub enum Cuda {}

impl Sealed for Host {}
impl Space for Host {
    const NAME: &'static str = "host";
}
impl Sealed for Cuda {}
impl Space for Cuda {
    const NAME: &'static str = "cuda";
}

/// Type equality of two spaces, with a sentence for when they differ (row l).
#[diagnostic::on_unimplemented(
    message = "`{Self}` memory where `{Other}` memory is needed",
    label = "this is in `{Self}` memory, or is launched on a `{Self}` recorder",
    note = "a kernel, its recorder and every span it takes must be in one memory space",
    note = "copy across with `recorder.write` / `recorder.read`, or keep the storage in `{Other}`: `YourStorage<{Other}>`"
)]
pub trait Is<Other> {}
impl<S: Space> Is<S> for S {}
