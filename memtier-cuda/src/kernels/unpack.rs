//! Matrices of 4 to 8 bits as rows again: in bf16 for products of many rows, and rows of an embedding.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, bf16};

use super::{TiledMatrix, Tiling, aligned, entries::Kernel, expect, narrow, product, require, vector::walk};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Warps of a block; each has a tile at a time.
const WARPS: usize = 8;

fn no_rows_of_e4m3(what: &'static str) -> LaunchError {
    LaunchError::Unsupported { what, why: "tiles of e4m3 are only multiplied: give those of a GGUF block" }
}

/// `out` becomes `matrices` in bf16, row by row, one behind the other; any number of rows of one width. A part of it is what
/// [`Matrix::new`](super::Matrix::new) takes: products of many rows read it once for all of them, where
/// [`project_tiled`](super::project_tiled) reads the tiles once for every 8 to 64.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit: other than one to three matrices, tiles of e4m3.
///
/// # Example
/// ```
/// use memtier::{Cuda, Eager, LaunchError, Recorder, StableSpan, StableSpanMut, bf16};
/// use memtier_cuda::{Kernels, kernels::{Inputs, Matrix, TiledMatrix, project, unpack_tiled}};
///
/// /// `out = weights x` for a thousand rows; `wide` has room for the matrix.
/// fn layer(
///     on: &Recorder<Eager<Cuda>>,
///     kernels: &Kernels,
///     out: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     wide: &mut StableSpanMut<'_, bf16, Eager<Cuda>>,
///     weights: TiledMatrix<'_, Eager<Cuda>>,
///     x: StableSpan<'_, bf16, Eager<Cuda>>,
/// ) -> Result<(), LaunchError> {
///     unpack_tiled(on, kernels, wide, &[weights])?;
///     let weights = Matrix::new(wide.read(), weights.rows(), weights.columns())?;
///     project(on, kernels, out, &[weights], Inputs::Plain(x), 1000)
/// }
/// # let _ = layer;
/// ```
pub fn unpack_tiled<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    matrices: &[TiledMatrix<'_, P>],
) -> Result<(), LaunchError> {
    let (what, out) = ("unpack_tiled", out.output::<bf16, P>(on));
    require((1..=3).contains(&matrices.len()), what, "one to three matrices are unpacked at once")?;
    let columns = matrices[0].columns;
    matrices.iter().try_for_each(|matrix| expect("unpack_tiled: columns", columns, matrix.columns))?;
    let rows = matrices.iter().try_fold(0usize, |sum, matrix| sum.checked_add(matrix.rows));
    let rows = rows.ok_or(LaunchError::Unsupported { what, why: "its rows overflow" })?;
    expect("unpack_tiled: out", product(what, &[rows, columns])?, out.units())?;
    // Of bf16.
    require(columns.is_multiple_of(8), what, "columns must be a multiple of 8")?;
    aligned(what, 16, &[out.addr()])?;
    let mut to = out.addr();
    for alike in matrices.chunk_by(|a, b| a.tiling == b.tiling) {
        launch_alike(on, kernels, (to, out.stream()), alike)?;
        to += alike.iter().map(|matrix| (matrix.rows * columns * 2) as u64).sum::<u64>();
    }
    Ok(())
}

/// Of one tiling.
fn launch_alike<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    (out, out_stream): (u64, u32),
    matrices: &[TiledMatrix<'_, P>],
) -> Result<(), LaunchError> {
    let (what, TiledMatrix { tiling, columns, .. }) = ("unpack_tiled", matrices[0]);
    let kernel = match tiling {
        Tiling::Q4 => Kernel::Unpack4,
        Tiling::Q5 => Kernel::Unpack5,
        Tiling::Q6 => Kernel::Unpack6,
        Tiling::Q8 => Kernel::Unpack8,
        Tiling::F8 => return Err(no_rows_of_e4m3(what)),
    };
    let tiles = |matrix: &TiledMatrix<'_, P>| product(what, &[matrix.rows.div_ceil(16), columns.div_ceil(64)]);
    let count = matrices.iter().try_fold(0usize, |sum, matrix| Ok::<_, LaunchError>(sum + tiles(matrix)?))?;
    let most = kernels.multiprocessors() as usize * 16;
    let grid =
        Grid { blocks: (narrow(what, count.div_ceil(WARPS).min(most))?, 1, 1), threads: WARPS as u32 * 32, shared: 0 };
    let at = |index: usize| matrices.get(index).map_or((0, matrices[0].stream, 0), |it| (it.addr, it.stream, it.rows));
    let [(w0, s0, n0), (w1, s1, n1), (w2, s2, n2)] = [at(0), at(1), at(2)];
    let mut sizes = [0; 4];
    for (to, size) in sizes.iter_mut().zip([n0, n1, n2, columns]) {
        *to = narrow(what, size)?.word();
    }
    let [n0, n1, n2, columns] = sizes;
    let words = [out, w0, w1, w2, n0, n1, n2, columns, count as u64];
    let kernels = kernels.clone();
    on.launch(&[out_stream, s0, s1, s2], move |queue| {
        // SAFETY: the kernel's own arguments; it reads `count` tiles, those of the matrices, and writes their rows to a part of `out`, which
        // came from `&mut` and was checked to hold all of them. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

/// `out[i] = factor * table[tokens[i]]`: `out` is tokens x the table's columns. A token behind its last row gets zeros.
///
/// # Errors
/// As [`unpack_tiled`].
pub fn embed_tiled<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    table: TiledMatrix<'_, P>,
    tokens: impl Input<u32, P>,
    factor: f32,
) -> Result<(), LaunchError> {
    let (what, out, tokens) = ("embed_tiled", out.output::<f32, P>(on), tokens.input());
    let TiledMatrix { addr, stream, tiling, rows, columns, .. } = table;
    let kernel = match tiling {
        Tiling::Q4 => Kernel::EmbedTiled4,
        Tiling::Q5 => Kernel::EmbedTiled5,
        Tiling::Q6 => Kernel::EmbedTiled6,
        Tiling::Q8 => Kernel::EmbedTiled8,
        Tiling::F8 => return Err(no_rows_of_e4m3(what)),
    };
    expect("embed_tiled: out", product(what, &[tokens.units(), columns])?, out.units())?;
    let pieces = out.units() / 8;
    if pieces == 0 {
        return Ok(());
    }
    aligned(what, 16, &[out.addr()])?;
    let grid = walk(kernels, pieces);
    let (rows, columns) = (narrow("embed_tiled: rows", rows)?, narrow("embed_tiled: columns", columns)?);
    let words = [out.addr(), addr, tokens.addr(), rows.word(), columns.word(), factor.word(), pieces as u64];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), stream, tokens.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it writes `pieces` eights of `out`, which came from `&mut`, and reads rows of the
        // table that are there. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}
