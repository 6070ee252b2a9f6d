//! RMS norms, alone and behind the addition to the residual stream.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, bf16};

use super::{aligned, entries::Kernel, expect, narrow, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Pieces of eight elements that one thread keeps in registers.
const VECTORS: usize = 4;

/// The longest row that a warp works at alone.
const OF_A_WARP: usize = 32 * 8 * VECTORS;
/// The most warps of a block that each work at a row.
const WARPS: usize = 4;
/// As many rows as fill a large device several times with such blocks.
const MANY: usize = 1024;

/// Rows of `hidden` elements by few threads with several pieces each, whose loads are on their way together: a warp a row where that is
/// enough, several in a block where there are many rows; otherwise a block a row.
fn rows_grid(rows: usize, hidden: usize) -> Result<Grid, LaunchError> {
    let what = "rms_norm";
    require(hidden > 0 && hidden.is_multiple_of(8), what, "the hidden size must be a multiple of 8")?;
    require(hidden / 8 <= 1024 * VECTORS, what, "the hidden size can be at most 32768")?;
    require(rows <= i32::MAX as usize, what, "a grid has at most 2^31 - 1 rows")?;
    let (blocks, threads) = match hidden {
        // Few rows are spread over all multiprocessors.
        ..=OF_A_WARP if rows >= MANY => (rows.div_ceil(WARPS), WARPS * 32),
        ..=OF_A_WARP => (rows, 32),
        _ => (rows, (hidden / 8).div_ceil(VECTORS).next_multiple_of(32)),
    };
    Ok(Grid { blocks: (narrow(what, blocks)?, 1, 1), threads: threads as u32, shared: 128 })
}

/// What a norm's launch is made of: its grid, elements of a row, and rows.
type Shape = (Grid, u32, u32);

/// Checks `[rows, hidden]` of a norm, or gives `None` for no rows.
fn shape(weight: usize, spans: &[(&'static str, usize)], rows: usize) -> Result<Option<Shape>, LaunchError> {
    let elements = product("rms_norm", &[rows, weight])?;
    spans.iter().try_for_each(|(what, found)| expect(what, elements, *found))?;
    if rows == 0 {
        return Ok(None);
    }
    Ok(Some((rows_grid(rows, weight)?, narrow("rms_norm", weight)?, narrow("rms_norm", rows)?)))
}

macro_rules! norms { ($($norm:ident $residual_norm:ident $stream:ty: $kernel:ident $residual_kernel:ident;)*) => { $(
    #[doc = concat!("`out = x / rms(x) * weight` by rows of `weight.len()` elements, from a residual stream of `", stringify!($stream), "`.")]
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when a span is not `rows` rows, [`LaunchError::Unsupported`] for a row length that is no
    /// multiple of 8 or over 32768.
    pub fn $norm<P: Place<Space: Is<Cuda>>>(
        on: &Recorder<P>,
        kernels: &Kernels,
        out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
        x: impl Input<$stream, P>,
        weight: impl Input<bf16, P>,
        (rows, epsilon): (usize, f32),
    ) -> Result<(), LaunchError> {
        let (out, x, weight) = (out.output::<bf16, P>(on), x.input(), weight.input());
        let spans = [("rms_norm: out", out.units()), ("rms_norm: x", x.units())];
        let Some((grid, hidden, count)) = shape(weight.units(), &spans, rows)? else { return Ok(()) };
        aligned("rms_norm", 16, &[out.addr(), x.addr(), weight.addr()])?;
        let words = [out.addr(), x.addr(), weight.addr(), hidden.word(), epsilon.word(), count.word()];
        let kernels = kernels.clone();
        on.launch(&[out.stream(), x.stream(), weight.stream()], move |queue| {
            // SAFETY: the kernel's own arguments; a block or a warp reads and writes one row of `hidden` elements, of which
            // the spans hold `count`. `out` came from `&mut`. The caller's views (or the graph) keep them.
            unsafe { launch(queue, kernels.function(Kernel::$kernel), grid, &words) }
        })
    }

    #[doc = concat!("`residual += delta`, and `out` its norm as in [`", stringify!($norm), "`]: the residual stream is `", stringify!($stream), "`.")]
    ///
    /// # Errors
    #[doc = concat!("As [`", stringify!($norm), "`].")]
    pub fn $residual_norm<P: Place<Space: Is<Cuda>>>(
        on: &Recorder<P>,
        kernels: &Kernels,
        out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
        residual: &mut StableSpanMut<'_, impl SameElement<$stream>, impl Fits<P>>,
        delta: impl Input<bf16, P>,
        weight: impl Input<bf16, P>,
        (rows, epsilon): (usize, f32),
    ) -> Result<(), LaunchError> {
        let (out, residual) = (out.output::<bf16, P>(on), residual.output::<$stream, P>(on));
        let (delta, weight) = (delta.input(), weight.input());
        let spans = [
            ("residual_rms_norm: out", out.units()),
            ("residual_rms_norm: residual", residual.units()),
            ("residual_rms_norm: delta", delta.units()),
        ];
        let Some((grid, hidden, count)) = shape(weight.units(), &spans, rows)? else { return Ok(()) };
        aligned("residual_rms_norm", 16, &[out.addr(), residual.addr(), delta.addr(), weight.addr()])?;
        let words =
            [out.addr(), residual.addr(), delta.addr(), weight.addr(), hidden.word(), epsilon.word(), count.word()];
        let kernels = kernels.clone();
        let streams = [out.stream(), residual.stream(), delta.stream(), weight.stream()];
        on.launch(&streams, move |queue| {
            // SAFETY: as above; `out` and `residual` came from two `&mut`, so they are different memory.
            unsafe { launch(queue, kernels.function(Kernel::$residual_kernel), grid, &words) }
        })
    }
)* } }
norms! {
    rms_norm residual_rms_norm f32: RmsNormF32 ResidualRmsNormF32;
    rms_norm_bf16 residual_rms_norm_bf16 bf16: RmsNormBf16 ResidualRmsNormBf16;
}

/// As [`rms_norm`], with a weight of f32.
///
/// # Errors
/// As [`rms_norm`].
pub fn rms_norm_wide<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    x: impl Input<f32, P>,
    weight: impl Input<f32, P>,
    (rows, epsilon): (usize, f32),
) -> Result<(), LaunchError> {
    let (out, x, weight) = (out.output::<bf16, P>(on), x.input(), weight.input());
    let spans = [("rms_norm: out", out.units()), ("rms_norm: x", x.units())];
    let Some((grid, hidden, count)) = shape(weight.units(), &spans, rows)? else { return Ok(()) };
    aligned("rms_norm", 16, &[out.addr(), x.addr(), weight.addr()])?;
    let words = [out.addr(), x.addr(), weight.addr(), hidden.word(), epsilon.word(), count.word()];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), x.stream(), weight.stream()], move |queue| {
        // SAFETY: as in `rms_norm`.
        unsafe { launch(queue, kernels.function(Kernel::RmsNormWide), grid, &words) }
    })
}

/// `residual += delta / rms(delta) * weight` by rows of `weight.len()` elements, all f32: a norm behind attention or feed-forward.
///
/// # Errors
/// As [`rms_norm`].
pub fn add_rms_norm<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    residual: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    delta: impl Input<f32, P>,
    weight: impl Input<f32, P>,
    (rows, epsilon): (usize, f32),
) -> Result<(), LaunchError> {
    let (residual, delta, weight) = (residual.output::<f32, P>(on), delta.input(), weight.input());
    let spans = [("add_rms_norm: residual", residual.units()), ("add_rms_norm: delta", delta.units())];
    let Some((grid, hidden, count)) = shape(weight.units(), &spans, rows)? else { return Ok(()) };
    aligned("add_rms_norm", 16, &[residual.addr(), delta.addr(), weight.addr()])?;
    let words = [residual.addr(), delta.addr(), weight.addr(), hidden.word(), epsilon.word(), count.word()];
    let kernels = kernels.clone();
    on.launch(&[residual.stream(), delta.stream(), weight.stream()], move |queue| {
        // SAFETY: as in `residual_rms_norm`, without another output.
        unsafe { launch(queue, kernels.function(Kernel::AddRmsNorm), grid, &words) }
    })
}
