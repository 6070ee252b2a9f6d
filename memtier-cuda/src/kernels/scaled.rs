//! Products of matrices of 8 and 4 bits: e4m3 with a scale for each row, and NVFP4.

use std::marker::PhantomData;

use memtier::{
    Cuda, E2M1x2, F8E4M3, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16,
};

use super::{aligned, entries::Kernel, expect, narrow, narrow_floats::nvfp4_scales, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Rows of either matrix of a block, and elements of a row that it takes at a time.
const TILE: usize = 128;

/// Where a matrix and its scales are.
struct Operand<P> {
    data: (u64, u32),
    scales: (u64, u32),
    rows: usize,
    columns: usize,
    span: PhantomData<fn(P) -> P>,
}

macro_rules! matrices { ($($(#[$doc:meta])* $name:ident: $element:ty, $scale:ty;)*) => { $(
    $(#[$doc])*
    pub struct $name<'a, P>(Operand<P>, PhantomData<&'a ()>);

    // Not derived: places are not `Copy`.
    impl<P> Clone for $name<'_, P> {
        fn clone(&self) -> Self {
            *self
        }
    }
    impl<P> Copy for $name<'_, P> {}

    impl<P> $name<'_, P> {
        /// Its rows.
        pub fn rows(&self) -> usize {
            self.0.rows
        }

        /// Elements of a row.
        pub fn columns(&self) -> usize {
            self.0.columns
        }
    }

    impl<'a, P: Place> $name<'a, P> {
        /// Spans as they were packed, as a matrix.
        ///
        /// # Errors
        /// [`LaunchError::Shape`] when one of them is of another length, [`LaunchError::Unsupported`] for columns that are no multiple of
        /// 128.
        pub fn new(
            data: StableSpan<'a, $element, P>,
            scales: StableSpan<'a, $scale, P>,
            rows: usize,
            columns: usize,
        ) -> Result<Self, LaunchError> {
            let what = stringify!($name);
            require(rows > 0 && columns > 0 && columns.is_multiple_of(TILE), what, "it needs rows, and columns in 128s")?;
            let (data, scales) = (Input::<$element, P>::input(data), Input::<$scale, P>::input(scales));
            let units = product(what, &[rows, columns / <$element as memtier::Element>::PER])?;
            expect(what, units, data.units())?;
            expect("scales", Self::scales(rows, columns), scales.units())?;
            aligned(what, 16, &[data.addr(), scales.addr()])?;
            let (data, scales) = ((data.addr(), data.stream()), (scales.addr(), scales.stream()));
            Ok($name(Operand { data, scales, rows, columns, span: PhantomData }, PhantomData))
        }
    }
)* } }
matrices! {
    /// A matrix of e4m3 with an f32 for each row, [packed](super::pack_fp8) on the host.
    Fp8Matrix: F8E4M3, f32;
    /// A matrix of NVFP4 (two e2m1 a byte, a ue4m3 for every 16), [packed](super::pack_nvfp4) on the host.
    Nvfp4Matrix: E2M1x2, F8E4M3;
}

impl<P> Clone for Operand<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Operand<P> {}

impl<P> Fp8Matrix<'_, P> {
    fn scales(rows: usize, _columns: usize) -> usize {
        rows
    }
}

impl<P> Nvfp4Matrix<'_, P> {
    fn scales(rows: usize, columns: usize) -> usize {
        nvfp4_scales(rows, columns)
    }
}

fn launch_scaled<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    what: &'static str,
    (kernel, shared): (Kernel, u32),
    (out, out_stream, out_units): (u64, u32, usize),
    [weights, x]: [Operand<P>; 2],
    scale: f32,
) -> Result<(), LaunchError> {
    expect("x: columns", weights.columns, x.columns)?;
    expect(what, product(what, &[x.rows, weights.rows])?, out_units)?;
    let blocks = (narrow(what, weights.rows.div_ceil(TILE))?, narrow(what, x.rows.div_ceil(TILE))?, 1);
    require(blocks.1 <= 65_535, what, "a launch takes at most 8 million rows")?;
    let grid = Grid { blocks, threads: 128, shared };
    let mut sizes = [0; 3];
    for (to, size) in sizes.iter_mut().zip([x.columns, x.rows, weights.rows]) {
        *to = narrow(what, size)?.word();
    }
    let [columns, rows, outputs] = sizes;
    let words = [out, x.data.0, weights.data.0, x.scales.0, weights.scales.0, columns, rows, outputs, scale.word()];
    let kernels = kernels.clone();
    on.launch(&[out_stream, x.data.1, x.scales.1, weights.data.1, weights.scales.1], move |queue| {
        // SAFETY: the kernel's own arguments. It reads both matrices and their scales, which were checked to be as long as their
        // rows and columns say, and writes rows x outputs of `out`, which came from `&mut`. The caller's views (or the graph)
        // keep them.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

/// `out = x weights^T` of e4m3, sums in f32, out in bf16: rows of `x` by rows of `weights`.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
///
/// ```
/// use memtier::{Cuda, Eager, LaunchError, Recorder, StableSpanMut, bf16};
/// use memtier_cuda::{Kernels, kernels::{Fp8Matrix, project_fp8}};
///
/// fn layer<'a>(
///     on: &Recorder<Eager<Cuda>>,
///     kernels: &Kernels,
///     out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     weights: Fp8Matrix<'a, Eager<Cuda>>,
///     x: Fp8Matrix<'a, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     assert_eq!(out.len(), x.rows() * weights.rows());
///     project_fp8(on, kernels, out, weights, x)
/// }
/// # let _ = layer;
/// ```
pub fn project_fp8<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    weights: Fp8Matrix<'_, P>,
    x: Fp8Matrix<'_, P>,
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    // Three stages of two tiles.
    launch_scaled(on, kernels, "project_fp8: out", (Kernel::GemmFp8, 96 << 10), out, [weights.0, x.0], 1.0)
}

/// `out = scale * x weights^T` of NVFP4, sums in f32, out in bf16. `scale` is the product of what both were divided by.
///
/// On a device without instructions for it (`sm_90a`) this is a stand-in by products of f16, for tests: use it where there are.
///
/// # Errors
/// As [`project_fp8`].
pub fn project_nvfp4<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    weights: Nvfp4Matrix<'_, P>,
    x: Nvfp4Matrix<'_, P>,
    scale: f32,
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    // Five stages of two tiles and their scales.
    launch_scaled(on, kernels, "project_nvfp4: out", (Kernel::GemmNvfp4, 5 * (18 << 10)), out, [weights.0, x.0], scale)
}
