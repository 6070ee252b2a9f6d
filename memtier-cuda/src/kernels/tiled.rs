//! Projections with weights of 4 to 8 bits.

use std::marker::PhantomData;

use memtier::{
    Cuda, Fits, Input, Is, LaunchError, Packed, PackedFormat, Place, Recorder, SameElement, StableSpan, StableSpanMut,
    bf16,
};

use super::{
    Activation, Inputs, Stable, TiledFormat, Tiling, aligned,
    decode::even_shared,
    entries::Kernel,
    expect, narrow, product,
    project::{How, Staged},
    require,
    tiled_ring::{Variant, ring},
    tiled_rows::by_rows,
};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
    module::is_90,
};

/// A matrix of few bits, [tiled](super::tile) when it was loaded.
///
/// ```
/// use memtier::{Cuda, Eager, LaunchError, Recorder, StableSpan, StableSpanMut, bf16};
/// use memtier_cuda::{Kernels, kernels::{TiledMatrix, Tiling, project_tiled}};
///
/// /// `out = weights x` for one row of 64 elements and 128 outputs; `tiles` was packed by `tile` and uploaded.
/// fn layer(
///     on: &Recorder<Eager<Cuda>>,
///     kernels: &Kernels,
///     out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     tiles: StableSpan<'_, u8, Eager<Cuda>>,
///     x: StableSpan<'_, bf16, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     let weights = TiledMatrix::new(tiles, Tiling::Q4, 128, 64)?;
///     project_tiled(on, kernels, out, &[weights], x, 1)
/// }
/// # let _ = layer;
/// ```
pub struct TiledMatrix<'a, P> {
    pub(super) addr: u64,
    pub(super) stream: u32,
    pub(super) tiling: Tiling,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Whether it may be read before the kernels in front are done.
    at_rest: bool,
    span: PhantomData<(&'a (), fn(P) -> P)>,
}

// Not derived: places are not `Copy`.
impl<P> Clone for TiledMatrix<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for TiledMatrix<'_, P> {}

impl<'a, P: Place> TiledMatrix<'a, P> {
    /// A span of tiles as a matrix: a model's tensor (see [`at_rest`](Self::at_rest)), or what a kernel has written.
    ///
    /// # Errors
    /// [`LaunchError::Shape`] when it has another number of bytes, [`LaunchError::Unsupported`] for columns that are no multiple of 32.
    pub fn new(
        tiles: impl Stable<'a, u8, P>,
        tiling: Tiling,
        rows: usize,
        columns: usize,
    ) -> Result<Self, LaunchError> {
        let span = Input::<u8, P>::input(tiles.stable());
        Self::checked((span.addr(), span.stream(), span.units()), tiling, rows, columns)
    }

    /// Says that no kernel in front of its products writes it, as [`Matrix::at_rest`](super::Matrix::at_rest) does. What
    /// [`packed`](Self::packed) makes is at rest.
    pub fn at_rest(self) -> Self {
        TiledMatrix { at_rest: true, ..self }
    }

    /// A tensor of a format that is known at run time. No kernel here writes such tensors: it is at rest.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`LaunchError::Unsupported`] for a format that is not tiled.
    pub fn packed<F: TiledFormat>(span: StableSpan<'a, Packed<F>, P>) -> Result<Self, LaunchError> {
        let span = Input::<Packed<F>, P>::input(span);
        let meta = span.meta();
        let why = "its format is not tiled: pack it by `tile` when it is loaded";
        let tiling = meta.format.tiling().ok_or(LaunchError::Unsupported { what: "tiled matrix", why })?;
        Self::checked((span.addr(), span.stream(), span.units()), tiling, meta.rows, meta.columns).map(Self::at_rest)
    }

    fn checked(
        (addr, stream, bytes): (u64, u32, usize),
        tiling: Tiling,
        rows: usize,
        columns: usize,
    ) -> Result<Self, LaunchError> {
        let what = "tiled matrix";
        require(rows > 0 && columns > 0, what, "it has no rows or no columns")?;
        require(columns.is_multiple_of(32), what, "its columns must be a multiple of 32")?;
        let overflow = LaunchError::Unsupported { what, why: "its dimensions overflow: one of them is absurd" };
        let expected = tiling.bytes(&[rows, columns]).ok_or(overflow)?;
        expect("tiled matrix: bytes", usize::try_from(expected.count()).unwrap_or(usize::MAX), bytes)?;
        aligned(what, 16, &[addr])?;
        Ok(TiledMatrix { addr, stream, tiling, rows, columns, at_rest: false, span: PhantomData })
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

/// A kernel of `quant.cu`, the rows of inputs and the outputs of a block (gated, half of either matrix), and its warps: those
/// that were fastest of several on an H200, 30 November 2026. `cargo xtask gpu --bench` (`gpu_bars_gemm`) prints what they take.
fn choose(tiling: Tiling, (rows, outputs, columns): (usize, usize, usize), gated: bool) -> (Kernel, usize, usize, u32) {
    use Kernel::*;
    // With few outputs it is better to read the weights twice than to have few blocks.
    if rows > 8 && (outputs >= 6144 || gated || matches!(tiling, Tiling::Q5 | Tiling::Q6)) {
        return match (tiling, outputs >= 12_288) {
            (Tiling::Q4, false) => (Quant4N2, 16, 32, 8),
            (Tiling::Q8, false) => (Quant8N2, 16, 32, 8),
            (Tiling::F8, _) => (Quant9N2, 16, 32, 8),
            (Tiling::Q4, true) => (Quant4N2Many, 16, 64, 8),
            (Tiling::Q8, true) => (Quant8N2Many, 16, 64, 8),
            (Tiling::Q5, _) => (Quant5N2, 16, 64, 8),
            (Tiling::Q6, _) => (Quant6N2, 16, 64, 8),
        };
    }
    // Long rows are cut among more warps; few outputs are cut into more blocks.
    let (long, few, many) = (columns >= 12_288 && rows <= 8, outputs < 4096 && !gated, outputs >= 12_288);
    match tiling {
        Tiling::Q4 if long => (Quant4N1Long, 8, 32, 16),
        Tiling::Q8 if long => (Quant8N1Long, 8, 32, 16),
        Tiling::Q4 if few => (Quant4N1Few, 8, 16, 8),
        Tiling::Q5 if few => (Quant5N1Few, 8, 16, 8),
        Tiling::Q6 if few => (Quant6N1Few, 8, 16, 8),
        Tiling::Q8 if few => (Quant8N1Few, 8, 16, 8),
        Tiling::F8 if few => (Quant9N1Few, 8, 16, 8),
        Tiling::Q4 if many => (Quant4N1Many, 8, 64, 8),
        Tiling::Q8 if many => (Quant8N1Many, 8, 32, 8),
        Tiling::Q4 => (Quant4N1, 8, 32, 8),
        Tiling::Q5 => (Quant5N1, 8, 32, 8),
        Tiling::Q6 => (Quant6N1, 8, 32, 8),
        Tiling::Q8 => (Quant8N1, 8, 32, 8),
        Tiling::F8 => (Quant9N1, 8, 32, 8),
    }
}

/// The most rows that are normalised on the way into [`project_tiled`].
const MOST_NORMED: usize = 8;

/// Whether it pays to normalise rows [on the way](Inputs::Normed) into [`project_tiled`]: every block of outputs does so for itself, and
/// reads the residual stream and the norm in f32.
pub fn is_few_tiled(rows: usize, columns: usize) -> bool {
    (1..=MOST_NORMED).contains(&rows) && columns <= 2048
}

/// As [`choose`], for rows that are normalised on the way.
fn choose_normed(tiling: Tiling, outputs: usize, gated: bool) -> Option<(Kernel, usize, usize, u32)> {
    use Kernel::*;
    let few = outputs < 4096 && !gated;
    let kernel = match (tiling, few) {
        (Tiling::Q4, true) => QuantNormed4Few,
        (Tiling::Q5, true) => QuantNormed5Few,
        (Tiling::Q6, true) => QuantNormed6Few,
        (Tiling::Q8, true) => QuantNormed8Few,
        (Tiling::Q4, false) => QuantNormed4,
        (Tiling::Q5, false) => QuantNormed5,
        (Tiling::Q6, false) => QuantNormed6,
        (Tiling::Q8, false) => QuantNormed8,
        (Tiling::F8, _) => return None,
    };
    Some((kernel, MOST_NORMED, if few { 16 } else { 32 }, 8))
}

/// What a launch is made of besides its matrices.
#[derive(Clone, Copy)]
struct Work {
    /// Address and stream.
    out: (u64, u32),
    inputs: Staged,
    rows: usize,
    how: How,
    /// Outputs of a row of `out`.
    all: usize,
}

/// One launch for matrices that are tiled alike; several for others, each into its columns of `out`.
fn launch_tiled<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    (out, out_stream, out_units): (u64, u32, usize),
    matrices: &[TiledMatrix<'_, P>],
    x: Inputs<'_, P>,
    (rows, how): (usize, How),
) -> Result<(), LaunchError> {
    let what = "project_tiled";
    require((1..=3).contains(&matrices.len()), what, "one to three matrices are multiplied at once")?;
    let columns = matrices[0].columns;
    matrices.iter().try_for_each(|matrix| expect("project_tiled: columns", columns, matrix.columns))?;
    let gated = matches!(how, How::GateSilu | How::GateGelu);
    let alike = |pair: &[TiledMatrix<'_, P>]| pair[0].tiling == pair[1].tiling;
    require(!gated || alike(matrices), what, "a gate and what it gates are tiled alike")?;
    let outputs = matrices.iter().try_fold(0usize, |sum, matrix| sum.checked_add(matrix.rows));
    let outputs = outputs.ok_or(LaunchError::Unsupported { what, why: "its outputs overflow" })?;
    let all = if gated { matrices[0].rows } else { outputs };
    expect("project_tiled: out", product(what, &[rows, all])?, out_units)?;
    let why = "more rows than a norm on the way is made for: normalise them first";
    require(rows <= MOST_NORMED || matches!(x, Inputs::Plain(_)), what, why)?;
    let inputs = x.check(what, rows, columns)?;
    if rows == 0 {
        return Ok(());
    }
    let bytes = if how == How::StoreBf16 || gated { 2 } else { 4 };
    let mut before = 0;
    for matrices in matrices.chunk_by(|a, b| a.tiling == b.tiling) {
        let out = (out + before * bytes, out_stream);
        launch_alike(on, kernels, matrices, Work { out, inputs, rows, how, all })?;
        before += matrices.iter().map(|matrix| matrix.rows as u64).sum::<u64>();
    }
    Ok(())
}

/// One launch; `matrices` are the first columns of `all` that a row of `out` has, the others are left as they are.
fn launch_alike<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    matrices: &[TiledMatrix<'_, P>],
    Work { out: (out, out_stream), inputs: Staged { x, norm, epsilon }, rows, how, all }: Work,
) -> Result<(), LaunchError> {
    let (what, TiledMatrix { columns, tiling, .. }) = ("project_tiled", matrices[0]);
    let gated = matches!(how, How::GateSilu | How::GateGelu);
    let outputs = if gated { all } else { matrices.iter().map(|matrix| matrix.rows).sum() };
    // Sums are in another order with other kernels: where a row must not depend on those beside it, one takes any number of them.
    let beside = if kernels.is_batch_invariant() { 1 } else { rows };
    let normed = norm.0 != 0;
    let both = if gated { outputs.saturating_mul(2) } else { outputs };
    let shape = (beside, both, columns);
    let device = (kernels.multiprocessors() as usize, is_90(kernels.target()));
    let large = match normed {
        true => None,
        false => ring(device, tiling, shape, gated).or_else(|| by_rows(device.0, tiling, shape, gated)),
    };
    let chosen = match normed {
        true => choose_normed(tiling, outputs, gated),
        false => Some(choose(tiling, (beside, outputs, columns), gated)),
    };
    let chosen = chosen.map(|(kernel, inputs, tile, warps)| {
        let shared = warps * inputs as u32 * 16 * 4;
        Variant { kernel, inputs, tile, warps, parts: 1, shared }
    });
    let why = "rows are not normalised on the way into tiles of e4m3: normalise them first";
    let chosen = large.or(chosen).ok_or(LaunchError::Unsupported { what, why })?;
    let Variant { kernel, inputs, tile, warps, parts, shared } = chosen;
    let tiles = match gated {
        true => outputs.div_ceil(tile / 2),
        false => matrices.iter().map(|matrix| matrix.rows.div_ceil(tile)).sum(),
    };
    let blocks = (narrow(what, tiles)?, narrow(what, rows.div_ceil(inputs))?, parts);
    require(blocks.1 <= 65_535, what, "a launch takes at most half a million rows")?;
    // Kernels that start early would lie unevenly.
    let shared = match large {
        Some(_) => {
            let blocks = tiles as u64 * u64::from(blocks.1) * u64::from(parts);
            even_shared(kernels.target(), kernels.multiprocessors(), blocks, shared)
        }
        None => shared,
    };
    let grid = Grid { blocks, threads: warps * 32, shared };
    let at = |index: usize| matrices.get(index).map_or((0, matrices[0].stream, 0), |it| (it.addr, it.stream, it.rows));
    let [(w0, s0, n0), (w1, s1, n1), (w2, s2, n2)] = [at(0), at(1), at(2)];
    let mut sizes = [n0, n1, n2];
    if gated {
        // The kernels know how many outputs both have.
        sizes[1] = 0;
    } else if let Some(behind) = sizes.get_mut(matrices.len()) {
        // No block is for them: they only make rows as wide as they are.
        *behind = all - outputs;
    }
    let [n0, n1, n2] = sizes;
    let mut words = [0; 5];
    for (to, size) in words.iter_mut().zip([n0, n1, n2, columns, rows]) {
        *to = narrow(what, size)?.word();
    }
    let [n0, n1, n2, columns, rows] = words;
    let how = u64::from(how as u32);
    let plain = [out, x.0, w0, w1, w2, n0, n1, n2, columns, rows, how];
    let on_the_way = [out, x.0, w0, w1, w2, norm.0, n0, n1, n2, columns, rows, how, epsilon.word()];
    // Kernels that start early read the first tiles before they wait.
    let mut function = kernels.function(kernel);
    function.early &= matrices.iter().all(|matrix| matrix.at_rest);
    on.launch(&[out_stream, x.1, norm.1, s0, s1, s2], move |queue| {
        // SAFETY: the kernel's own arguments. It reads `rows` rows of inputs, a norm, and the matrices' tiles, and writes, of rows of `all`
        // elements, as many as the matrices have outputs: all checked to be in `out`, which came from `&mut`. The caller's views (or the
        // graph) keep them.
        unsafe {
            match normed {
                true => launch(queue, function, grid, &on_the_way),
                false => launch(queue, function, grid, &plain),
            }
        }
    })
}

/// `out = weights x` in bf16, sums in f32: `out` is rows x the outputs of all `matrices`, one to three, side by side: in one launch
/// where they are tiled alike.
///
/// Up to 8 rows read the weights once, and so do up to 16 where the matrix is large for the device. More read them once for every 8 or 16 rows; with up to
/// 2048 weights a row, in the cases that were measured to be faster so (gated from 17 rows on, others mostly from 33), once for every 16, 32 or 64, and weights of 4 bits are rounded to bf16
/// then, as [`unpack_tiled`](super::unpack_tiled) rounds all: 2e-3 of the result in place of 1e-6. Which of these it is depends on rows, shape and device, never on the numbers. Many rows are better multiplied with what `unpack_tiled` makes of the tiles. Up to 8 rows can be
/// [normalised on the way](Inputs::Normed). [Batch-invariant](Kernels::batch_invariant) kernels take 8 rows at a time.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
pub fn project_tiled<'x, P: Place<Space: Is<Cuda>> + 'x>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    matrices: &[TiledMatrix<'_, P>],
    x: impl Into<Inputs<'x, P>>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    launch_tiled(on, kernels, (out.addr(), out.stream(), out.units()), matrices, x.into(), (rows, How::StoreBf16))
}

/// The same in f32.
///
/// # Errors
/// As [`project_tiled`].
pub fn project_tiled_f32<'x, P: Place<Space: Is<Cuda>> + 'x>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    matrices: &[TiledMatrix<'_, P>],
    x: impl Into<Inputs<'x, P>>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<f32, P>(on);
    launch_tiled(on, kernels, (out.addr(), out.stream(), out.units()), matrices, x.into(), (rows, How::StoreF32))
}

/// `out += weights x` in f32: a projection back into the residual stream.
///
/// # Errors
/// As [`project_tiled`].
pub fn project_tiled_add<'x, P: Place<Space: Is<Cuda>> + 'x>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    matrix: TiledMatrix<'_, P>,
    x: impl Into<Inputs<'x, P>>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<f32, P>(on);
    launch_tiled(on, kernels, (out.addr(), out.stream(), out.units()), &[matrix], x.into(), (rows, How::AddF32))
}

/// `out = act(gate x) * (up x)` in bf16.
///
/// # Errors
/// As [`project_tiled`].
pub fn project_tiled_gated<'x, P: Place<Space: Is<Cuda>> + 'x>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    [gate, up]: [TiledMatrix<'_, P>; 2],
    x: impl Into<Inputs<'x, P>>,
    (rows, activation): (usize, Activation),
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    expect("project_tiled: up rows", gate.rows, up.rows)?;
    let how = if activation == Activation::GeluTanh { How::GateGelu } else { How::GateSilu };
    launch_tiled(on, kernels, (out.addr(), out.stream(), out.units()), &[gate, up], x.into(), (rows, how))
}
