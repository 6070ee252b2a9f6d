//! Weight matrices as kernels take them.

use std::marker::PhantomData;

use memtier::{Input, LaunchError, Packed, PackedFormat, Place, StableSpan, bf16};

use super::{Stable, expect, product, require};

/// A format of [`Packed`] tensors that kernels here can read.
pub trait MatrixFormat: PackedFormat {
    /// Whether a tensor of it is bf16, row by row.
    fn is_bf16(&self) -> bool;
}

/// A matrix of bf16, row by row, of at least one row.
///
/// ```
/// use memtier::{Cuda, LaunchError, Recorder, Eager, StableSpan, StableSpanMut, bf16};
/// use memtier_cuda::{Kernels, kernels::{Inputs, Matrix, project}};
///
/// /// `out = weights x` for one row of 64 elements and 128 outputs.
/// fn layer(
///     on: &Recorder<Eager<Cuda>>,
///     kernels: &Kernels,
///     out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     weights: StableSpan<'_, bf16, Eager<Cuda>>,
///     x: StableSpan<'_, bf16, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     let weights = Matrix::new(weights, 128, 64)?;
///     project(on, kernels, out, &[weights], Inputs::plain(x), 1)
/// }
/// # let _ = layer;
/// ```
pub struct Matrix<'a, P> {
    pub(super) addr: u64,
    pub(super) stream: u32,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Whether it may be read before the kernels in front are done.
    pub(super) at_rest: bool,
    span: PhantomData<(&'a (), fn(P) -> P)>,
}

// Not derived: places are not `Copy`.
impl<P> Clone for Matrix<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Matrix<'_, P> {}

impl<'a, P: Place> Matrix<'a, P> {
    /// A span as a matrix: a model's tensor (see [`at_rest`](Self::at_rest)), or what a kernel has written.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when it has another number of elements, [`LaunchError::Unsupported`] for columns that are no
    /// multiple of 8.
    pub fn new(span: impl Stable<'a, bf16, P>, rows: usize, columns: usize) -> Result<Self, LaunchError> {
        let span = Input::<bf16, P>::input(span.stable());
        expect("matrix", product("matrix", &[rows, columns])?, span.units())?;
        Self::checked(span.addr(), span.stream(), rows, columns)
    }

    /// Says that no kernel in front of its products writes it, as none writes a model's weights. Their kernels then start early and have its
    /// first elements on their way while the one in front still runs; of a matrix that it writes they would read what was there before.
    /// What [`packed`](Self::packed) makes is at rest.
    pub fn at_rest(self) -> Self {
        Matrix { at_rest: true, ..self }
    }

    /// A tensor of a format that is known at run time. No kernel here writes such tensors: it is at rest.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`LaunchError::Unsupported`] for a format that is not bf16.
    pub fn packed<F: MatrixFormat>(span: StableSpan<'a, Packed<F>, P>) -> Result<Self, LaunchError> {
        let span = Input::<Packed<F>, P>::input(span);
        let (rows, columns) = (span.meta().rows, span.meta().columns);
        require(span.meta().format.is_bf16(), "matrix", "its format is not bf16: convert it when it is uploaded")?;
        expect("matrix: bytes", product("matrix", &[rows, columns, 2])?, span.units())?;
        Self::checked(span.addr(), span.stream(), rows, columns).map(Self::at_rest)
    }

    fn checked(addr: u64, stream: u32, rows: usize, columns: usize) -> Result<Self, LaunchError> {
        require(rows > 0, "matrix", "it has no rows")?;
        require(columns > 0 && columns.is_multiple_of(8), "matrix", "its columns must be a multiple of 8")?;
        Ok(Matrix { addr, stream, rows, columns, at_rest: false, span: PhantomData })
    }

    /// Its address and stream.
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.addr, self.stream)
    }

    /// Its rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }
}
