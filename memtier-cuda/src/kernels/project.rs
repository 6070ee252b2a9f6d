//! Projections: products of inputs with weights of bf16.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16};

use super::{Activation, Matrix, aligned, entries::Kernel, expect, narrow, product, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// The most rows of inputs that are multiplied a warp an output.
const FEW: usize = 4;
/// What inputs may take of a block's shared memory there.
const ROOM: usize = 46 << 10;
/// Rows and columns of the tiles for more of them.
const TILE: usize = 64;
/// Shared memory of a block for those: three stages of two tiles.
const SHARED: u32 = 48 << 10;

/// The inputs of a projection: rows of as many elements as its matrices have columns.
pub enum Inputs<'a, P> {
    /// As they are.
    Plain(StableSpan<'a, bf16, P>),
    /// A residual stream that is normalised on the way, for [few rows](is_few) only: `x / rms(x) * weight`, rounded to bf16.
    Normed {
        /// The stream.
        x: StableSpan<'a, f32, P>,
        /// One row of weights.
        weight: StableSpan<'a, f32, P>,
        /// What is added to the mean square.
        epsilon: f32,
    },
}

// Not derived: places are not `Copy`.
impl<P> Clone for Inputs<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Inputs<'_, P> {}

/// Whether a projection of `rows` rows of `columns` elements takes inputs that are normalised on the way: it is made a warp an
/// output. With more rows it is made in tiles.
pub fn is_few(rows: usize, columns: usize) -> bool {
    rows <= FEW && padded(rows).saturating_mul(columns).saturating_mul(2) <= ROOM
}

/// Rows that the kernel for so many keeps.
fn padded(rows: usize) -> usize {
    if rows == 1 { 1 } else { FEW }
}

/// What becomes of a sum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    StoreBf16,
    StoreF32,
    AddF32,
}

/// An input's address and stream, and those of its norm, with the epsilon.
struct Staged {
    x: (u64, u32),
    norm: (u64, u32),
    epsilon: f32,
}

impl<P: Place> Inputs<'_, P> {
    fn check(self, what: &'static str, rows: usize, columns: usize) -> Result<Staged, LaunchError> {
        let elements = product(what, &[rows, columns])?;
        match self {
            Inputs::Plain(x) => {
                let x = Input::<bf16, P>::input(x);
                expect("project: x", elements, x.units())?;
                aligned(what, 16, &[x.addr()])?;
                Ok(Staged { x: (x.addr(), x.stream()), norm: (0, x.stream()), epsilon: 0.0 })
            }
            Inputs::Normed { x, weight, epsilon } => {
                let (x, weight) = (Input::<f32, P>::input(x), Input::<f32, P>::input(weight));
                expect("project: x", elements, x.units())?;
                expect("project: norm", columns, weight.units())?;
                require(
                    is_few(rows, columns),
                    what,
                    "more rows than a norm on the way is made for: normalise them first",
                )?;
                aligned(what, 16, &[x.addr(), weight.addr()])?;
                Ok(Staged { x: (x.addr(), x.stream()), norm: (weight.addr(), weight.stream()), epsilon })
            }
        }
    }
}

/// A grid of four warps a block, an output a warp, as many blocks as are there at once.
fn few_grid(kernels: &Kernels, outputs: usize, rows: usize, columns: usize) -> Grid {
    let most = kernels.multiprocessors().saturating_mul(12).max(1);
    let blocks = u32::try_from(outputs.div_ceil(4)).unwrap_or(u32::MAX).clamp(1, most);
    Grid { blocks: (blocks, 1, 1), threads: 128, shared: (padded(rows) * columns * 2) as u32 }
}

/// Launches a projection into `out`, an address and its stream.
fn launch_projection<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    (out, out_stream, out_units): (u64, u32, usize),
    matrices: &[Matrix<'_, P>],
    x: Inputs<'_, P>,
    (rows, how): (usize, How),
) -> Result<(), LaunchError> {
    let what = "project";
    require((1..=3).contains(&matrices.len()), what, "one to three matrices are multiplied at once")?;
    let columns = matrices[0].columns;
    matrices.iter().try_for_each(|matrix| expect("project: columns", columns, matrix.columns))?;
    let outputs = matrices.iter().try_fold(0usize, |sum, matrix| sum.checked_add(matrix.rows));
    let outputs = outputs.ok_or(LaunchError::Unsupported { what, why: "its outputs overflow" })?;
    expect("project: out", product(what, &[rows, outputs])?, out_units)?;
    let Staged { x, norm, epsilon } = x.check(what, rows, columns)?;
    if rows == 0 {
        return Ok(());
    }
    let at = |index: usize| matrices.get(index).map_or((0, matrices[0].stream, 0), |it| (it.addr, it.stream, it.rows));
    let [first, second, third] = [at(0), at(1), at(2)];
    aligned(what, 16, &[first.0, second.0, third.0])?;
    let sizes = [narrow(what, first.2)?, narrow(what, second.2)?, narrow(what, third.2)?];
    narrow(what, outputs)?;
    let streams = [out_stream, x.1, norm.1, first.1, second.1, third.1];
    let common = [sizes[0].word(), sizes[1].word(), sizes[2].word(), narrow(what, columns)?.word()];
    let (rows_word, how) = (narrow(what, rows)?.word(), u64::from(how as u32));
    let kernels = kernels.clone();
    if is_few(rows, columns) {
        let grid = few_grid(&kernels, outputs, rows, columns);
        let kernel = if rows == 1 { Kernel::ProjectFew1 } else { Kernel::ProjectFew4 };
        let [n0, n1, n2, columns] = common;
        let words = [out, x.0, first.0, second.0, third.0, norm.0, n0, n1, n2, columns, rows_word, how, epsilon.word()];
        return on.launch(&streams, move |queue| {
            // SAFETY: the kernel's own arguments. It reads `rows` rows of inputs, the norm's weight where there is one, and the
            // matrices, and writes rows x outputs of `out`, which came from `&mut`: all checked to be as long. The caller's
            // views (or the graph) keep them.
            unsafe { launch(queue, kernels.function(kernel), grid, &words) }
        });
    }
    let tiles = matrices.iter().map(|matrix| matrix.rows.div_ceil(TILE)).sum::<usize>();
    let blocks = (narrow(what, tiles)?, narrow(what, rows.div_ceil(TILE))?, 1);
    require(blocks.1 <= 65_535, what, "a launch takes at most 4 million rows")?;
    let grid = Grid { blocks, threads: 128, shared: SHARED };
    let [n0, n1, n2, columns] = common;
    let words = [out, x.0, first.0, second.0, third.0, n0, n1, n2, columns, rows_word, how];
    on.launch(&streams, move |queue| {
        // SAFETY: as above; there is no norm.
        unsafe { launch(queue, kernels.function(Kernel::ProjectMany), grid, &words) }
    })
}

/// `out = weights x` in bf16: `out` is rows x the outputs of all `matrices`, one to three, side by side.
///
/// # Errors
/// [`LaunchError::Shape`] and [`LaunchError::Unsupported`] name what does not fit.
pub fn project<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    matrices: &[Matrix<'_, P>],
    x: Inputs<'_, P>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    launch_projection(on, kernels, out, matrices, x, (rows, How::StoreBf16))
}

/// The same in f32.
///
/// # Errors
/// As [`project`].
pub fn project_f32<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    matrices: &[Matrix<'_, P>],
    x: Inputs<'_, P>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<f32, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    launch_projection(on, kernels, out, matrices, x, (rows, How::StoreF32))
}

/// `out += weights x` in f32: a projection back into the residual stream. `x` is other memory than `out`.
///
/// # Errors
/// As [`project`].
pub fn project_add<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    matrix: Matrix<'_, P>,
    x: Inputs<'_, P>,
    rows: usize,
) -> Result<(), LaunchError> {
    let out = out.output::<f32, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    launch_projection(on, kernels, out, &[matrix], x, (rows, How::AddF32))
}

/// `out = act(gate x) * (up x)` in bf16, for [few rows](is_few). For more of them, [`project`] both and [`gate`](super::gate()).
///
/// # Errors
/// As [`project`]; [`LaunchError::Unsupported`] for more rows.
pub fn project_gated<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    [gate, up]: [Matrix<'_, P>; 2],
    x: Inputs<'_, P>,
    (rows, activation): (usize, Activation),
) -> Result<(), LaunchError> {
    let (what, out) = ("project_gated", out.output::<bf16, P>(on));
    expect("project_gated: up rows", gate.rows, up.rows)?;
    expect("project_gated: up columns", gate.columns, up.columns)?;
    expect("project_gated: out", product(what, &[rows, gate.rows])?, out.units())?;
    require(is_few(rows, gate.columns), what, "more rows than are gated on the way: project them, then gate")?;
    let Staged { x, norm, epsilon } = x.check(what, rows, gate.columns)?;
    if rows == 0 {
        return Ok(());
    }
    aligned(what, 16, &[gate.addr, up.addr])?;
    let grid = few_grid(kernels, gate.rows, rows, gate.columns);
    let kernel = if rows == 1 { Kernel::ProjectGated1 } else { Kernel::ProjectGated4 };
    let words = [
        out.addr(),
        x.0,
        gate.addr,
        up.addr,
        norm.0,
        narrow(what, gate.rows)?.word(),
        narrow(what, gate.columns)?.word(),
        narrow(what, rows)?.word(),
        u64::from(activation == Activation::GeluTanh),
        epsilon.word(),
    ];
    let streams = [out.stream(), x.1, norm.1, gate.stream, up.stream];
    let kernels = kernels.clone();
    on.launch(&streams, move |queue| {
        // SAFETY: the kernel's own arguments, of lengths as checked; `out` came from `&mut`. The caller's views (or the graph)
        // keep them.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_fit_into_shared_memory() {
        assert!(is_few(1, 576) && is_few(4, 5632) && is_few(1, 16_384));
        // Two rows take the place of four; five go to the tensor cores.
        assert!(!is_few(2, 16_384) && !is_few(5, 64) && !is_few(1, usize::MAX));
    }
}
