//! What keeps its address: what matrices and the inputs of products are made of.

use memtier::{Element, StableSpan, StableSpanMut};

/// A [`StableSpan`] of `T`, or `&` of a write view of it: what a [`Matrix`](super::Matrix), a [`TiledMatrix`](super::TiledMatrix) and
/// [`Inputs`](super::Inputs) are made of.
///
/// ```
/// use memtier::{Cuda, Eager, LaunchError, StableSpan, StableSpanMut, bf16};
/// use memtier_cuda::kernels::{Inputs, Matrix};
///
/// fn of(
///     weights: StableSpan<'_, bf16, Eager<Cuda>>,
///     written: &StableSpanMut<'_, bf16, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     let (_matrix, _inputs) = (Matrix::new(weights, 128, 64)?, Inputs::plain(written));
///     Ok(())
/// }
/// # let _ = of;
/// ```
#[diagnostic::on_unimplemented(
    message = "a product cannot read `{Self}`",
    label = "not a stable span of `{T}`",
    note = "matrices and inputs are `StableSpan`s, or `&view.field` of a write view: take them from `step.buffers`, or from \
            `step.scratch.take(..)`; a `DeviceSpan`, a raw pointer and a host slice carry no promise that the address stays valid",
    note = "elements are never reinterpreted: give the field the element that is multiplied, or convert with a kernel; weights of few \
            bits are `TiledMatrix`es of the bytes that `tile` makes"
)]
pub trait Stable<'a, T: Element, P> {
    /// The span.
    fn stable(self) -> StableSpan<'a, T, P>;
}

impl<'a, T: Element, P> Stable<'a, T, P> for StableSpan<'a, T, P> {
    fn stable(self) -> StableSpan<'a, T, P> {
        self
    }
}
impl<'a, T: Element, P> Stable<'a, T, P> for &StableSpan<'a, T, P> {
    fn stable(self) -> StableSpan<'a, T, P> {
        *self
    }
}
impl<'a, T: Element, P> Stable<'a, T, P> for &'a StableSpanMut<'_, T, P> {
    fn stable(self) -> StableSpan<'a, T, P> {
        self.read()
    }
}
