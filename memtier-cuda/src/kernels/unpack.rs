//! Matrices of 4 to 8 bits as rows again: in bf16 for products of many rows, and rows of an embedding.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, bf16};

use super::{TiledMatrix, Tiling, aligned, entries::Kernel, expect, narrow, product, vector::walk};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// Warps of a block; each has a tile at a time.
const WARPS: usize = 8;

fn no_rows_of_e4m3(what: &'static str) -> LaunchError {
    LaunchError::Unsupported { what, why: "tiles of e4m3 are only multiplied: give those of a GGUF block" }
}

/// `out` becomes the matrix in bf16, row by row: what [`Matrix::new`](super::Matrix::new) takes. Products of many rows read it once for
/// all of them, where [`project_tiled`](super::project_tiled) reads the tiles once for every 16.
///
/// # Errors
/// [`LaunchError::Shape`], and [`LaunchError::Unsupported`] for tiles of e4m3.
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
///     unpack_tiled(on, kernels, wide, weights)?;
///     let weights = Matrix::new(wide.read(), weights.rows(), weights.columns())?;
///     project(on, kernels, out, &[weights], Inputs::Plain(x), 1000)
/// }
/// # let _ = layer;
/// ```
pub fn unpack_tiled<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    matrix: TiledMatrix<'_, P>,
) -> Result<(), LaunchError> {
    let (what, out) = ("unpack_tiled", out.output::<bf16, P>(on));
    let TiledMatrix { addr, stream, tiling, rows, columns, .. } = matrix;
    let kernel = match tiling {
        Tiling::Q4 => Kernel::Unpack4,
        Tiling::Q5 => Kernel::Unpack5,
        Tiling::Q6 => Kernel::Unpack6,
        Tiling::Q8 => Kernel::Unpack8,
        Tiling::F8 => return Err(no_rows_of_e4m3(what)),
    };
    expect("unpack_tiled: out", product(what, &[rows, columns])?, out.units())?;
    aligned(what, 16, &[out.addr()])?;
    let tiles = product(what, &[rows.div_ceil(16), columns.div_ceil(64)])?;
    let most = kernels.multiprocessors() as usize * 16;
    let blocks = narrow(what, tiles.div_ceil(WARPS).min(most))?;
    let grid = Grid { blocks: (blocks, 1, 1), threads: WARPS as u32 * 32, shared: 0 };
    let words = [out.addr(), addr, narrow(what, rows)?.word(), narrow(what, columns)?.word(), tiles as u64];
    let kernels = kernels.clone();
    on.launch(&[out.stream(), stream], move |queue| {
        // SAFETY: the kernel's own arguments; it reads `tiles` tiles, which the matrix was checked to have, and writes rows x columns of
        // `out`, which came from `&mut`. The caller's views (or the graph) keep them.
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
