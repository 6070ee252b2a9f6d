//! Projections: products of inputs with weights of bf16.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpan, StableSpanMut, bf16};

use super::{
    Activation, Matrix, Stable, aligned,
    decode::even_shared,
    entries::Kernel,
    expect, narrow, product, require,
    skinny::{FEW, MANY, MOST_ROWS, goes_through_rings, skinny},
};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// A kernel of `gemm.cu`: rows of inputs and outputs of a block, and its shared memory: stages of two tiles of some elements a row, and room for
/// the sums that two groups of warps exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tiled {
    kernel: Kernel,
    rows: usize,
    outputs: usize,
    threads: u32,
    shared: u32,
    /// What a multiprocessor takes for one block, for two, and for three at a time: about a tenth of a microsecond for rows of 576 elements on an
    /// H200, such that of 70 products of 65 to 8192 rows nearly all have the kernel that was fastest there. As many as there are fit.
    times: &'static [usize],
}

const fn tiled(kernel: Kernel, (rows, outputs): (usize, usize), shared: u32, times: &'static [usize]) -> Tiled {
    Tiled { kernel, rows, outputs, threads: 128, shared: shared << 10, times }
}

const LEAST: Tiled = tiled(Kernel::Gemm32x64, (32, 64), 92, &[24, 41]);
const SMALL: Tiled = tiled(Kernel::Gemm64x64, (64, 64), 96, &[40, 71]);
const MIDDLE: Tiled = tiled(Kernel::Gemm64x96, (64, 96), 60, &[52, 61, 110]);
const WIDE: Tiled = tiled(Kernel::Gemm64x128, (64, 128), 72, &[90, 102, 113]);
const HIGH: Tiled = tiled(Kernel::Gemm128x64, (128, 64), 72, &[56, 103, 121]);
const LARGER: Tiled = tiled(Kernel::Gemm128x96, (128, 96), 84, &[65, 112]);
const LARGE: Tiled = tiled(Kernel::Gemm128x128, (128, 128), 96, &[72, 145]);
const HUGE: Tiled = Tiled { threads: 256, ..tiled(Kernel::Gemm192x192, (192, 192), 96, &[161]) };
/// Those that the fastest is taken of.
const TILES: [Tiled; KERNELS_OF_MANY_ROWS] = [LEAST, SMALL, MIDDLE, WIDE, HIGH, LARGER, LARGE, HUGE];
/// How many kernels there are for many rows, by default.
#[doc(hidden)]
pub const KERNELS_OF_MANY_ROWS: usize = 8;
/// For the batch-invariant mode: a row's elements in the order of the kernels for few rows.
const IN_ORDER: Tiled = tiled(Kernel::GemmInOrder, (64, 64), 48, &[77, 98, 123]);
/// The same where those go through rings.
const IN_RINGS: Tiled = Tiled { kernel: Kernel::GemmInRings, ..IN_ORDER };
/// Outputs of all rows from which on the batch-invariant mode takes that kernel.
const ENOUGH: usize = 180_000;
/// Rows up to which, outputs below which, and elements of a row up to which the kernels for few rows are faster than tiles all the same.
const SOME: usize = 96;
const NARROW: usize = 768;
const SHORT: usize = 2048;
/// Rows above which tiles are faster for two matrices that gate each other.
const MOST_GATED: usize = 48;

/// The inputs of a projection: rows of as many elements as its matrices have columns. [`plain`](Self::plain) and
/// [`normed`](Self::normed) take write views, too, and a span that does not fit is refused with the remedy.
pub enum Inputs<'a, P> {
    /// As they are.
    Plain(StableSpan<'a, bf16, P>),
    /// A residual stream that is normalised on the way, for up to 64 rows: `x / rms(x) * weight`. What is multiplied is
    /// `x * weight`, rounded to bf16; the products are divided by `rms(x)`.
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

impl<'a, P> Inputs<'a, P> {
    /// Rows as they are: [`Plain`](Self::Plain).
    pub fn plain(x: impl Stable<'a, bf16, P>) -> Self {
        Inputs::Plain(x.stable())
    }

    /// Rows of a residual stream, normalised on the way: [`Normed`](Self::Normed).
    pub fn normed(x: impl Stable<'a, f32, P>, weight: impl Stable<'a, f32, P>, epsilon: f32) -> Self {
        Inputs::Normed { x: x.stable(), weight: weight.stable(), epsilon }
    }
}

impl<'a, P> From<StableSpan<'a, bf16, P>> for Inputs<'a, P> {
    fn from(x: StableSpan<'a, bf16, P>) -> Self {
        Inputs::Plain(x)
    }
}

/// Whether rows are so few that it pays to normalise them [on the way](Inputs::Normed) into a projection: every block of outputs does so
/// for itself.
pub fn is_few(rows: usize, columns: usize) -> bool {
    rows <= FEW && columns > 0
}

/// What becomes of a sum, as the kernels number it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    StoreBf16,
    StoreF32,
    AddF32,
    GateSilu,
    GateGelu,
}

/// An input's address and stream, and those of its norm, with the epsilon.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    pub(super) x: (u64, u32),
    pub(super) norm: (u64, u32),
    pub(super) epsilon: f32,
}

impl<P: Place> Inputs<'_, P> {
    pub(super) fn check(self, what: &'static str, rows: usize, columns: usize) -> Result<Staged, LaunchError> {
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
                require(rows <= MOST_ROWS, what, "more rows than a norm on the way is made for: normalise them first")?;
                aligned(what, 16, &[x.addr(), weight.addr()])?;
                Ok(Staged { x: (x.addr(), x.stream()), norm: (weight.addr(), weight.stream()), epsilon })
            }
        }
    }
}

/// What a launch is made of, checked.
pub(super) struct Work {
    pub(super) out: (u64, u32),
    pub(super) inputs: Staged,
    /// Address, stream and outputs; no outputs: there is none.
    pub(super) matrices: [(u64, u32, usize); 3],
    /// Whether all of them may be read before the kernels in front are done.
    pub(super) at_rest: bool,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) how: How,
}

impl Work {
    /// Checks shapes: `out` is an address with its stream and length.
    fn check<P: Place>(
        what: &'static str,
        (out, out_stream, out_units): (u64, u32, usize),
        matrices: &[Matrix<'_, P>],
        x: Inputs<'_, P>,
        (rows, how): (usize, How),
    ) -> Result<Self, LaunchError> {
        require((1..=3).contains(&matrices.len()), what, "one to three matrices are multiplied at once")?;
        let columns = matrices[0].columns;
        matrices.iter().try_for_each(|matrix| expect("project: columns", columns, matrix.columns))?;
        let at =
            |index: usize| matrices.get(index).map_or((0, matrices[0].stream, 0), |it| (it.addr, it.stream, it.rows));
        let mut work = Work {
            out: (out, out_stream),
            inputs: x.check(what, rows, columns)?,
            matrices: [at(0), at(1), at(2)],
            at_rest: matrices.iter().all(|matrix| matrix.at_rest),
            columns,
            rows,
            how,
        };
        let outputs = matrices.iter().try_fold(0usize, |sum, matrix| sum.checked_add(matrix.rows));
        let outputs = outputs.ok_or(LaunchError::Unsupported { what, why: "its outputs overflow" })?;
        let outputs = if work.gated() { matrices[0].rows } else { outputs };
        expect("project: out", product(what, &[rows, outputs])?, out_units)?;
        aligned(what, 16, &work.matrices.map(|(addr, ..)| addr))?;
        if work.gated() {
            // The kernels know how many outputs both have.
            work.matrices[1].2 = 0;
        }
        [outputs, rows, columns].into_iter().try_for_each(|size| narrow(what, size).map(drop))?;
        Ok(work)
    }

    /// Whether two matrices are multiplied whose outputs become one.
    pub(super) fn gated(&self) -> bool {
        matches!(self.how, How::GateSilu | How::GateGelu)
    }

    /// Tiles of outputs of so many outputs; of a gated one, half are those of either matrix.
    pub(super) fn tiles(&self, outputs: usize) -> usize {
        match self.gated() {
            true => self.matrices[0].2.div_ceil(outputs / 2),
            false => self.matrices.iter().map(|(.., rows)| rows.div_ceil(outputs)).sum(),
        }
    }

    /// Outputs of all matrices; gated, those of either.
    pub(super) fn outputs(&self) -> usize {
        self.matrices.iter().map(|(.., rows)| rows).sum()
    }

    pub(super) fn streams(&self) -> [u32; 6] {
        let [first, second, third] = self.matrices.map(|(_, stream, _)| stream);
        [self.out.1, self.inputs.x.1, self.inputs.norm.1, first, second, third]
    }

    fn launch<P: Place<Space: Is<Cuda>>>(self, on: &Recorder<P>, kernels: &Kernels) -> Result<(), LaunchError> {
        let outputs = self.outputs();
        let normed = self.inputs.norm.0 != 0;
        match self.rows {
            0 => Ok(()),
            _ if normed => skinny(on, kernels, &self),
            _ if kernels.tile().is_some() => self.many(on, kernels),
            // Both give the same bits.
            rows if kernels.is_batch_invariant() => match rows > FEW && rows.saturating_mul(outputs) >= ENOUGH {
                true => self.many(on, kernels),
                false => skinny(on, kernels, &self),
            },
            rows if self.is_for_few(rows) => skinny(on, kernels, &self),
            _ => self.many(on, kernels),
        }
    }

    /// Whether the kernels for few rows are faster. Within the ranges that `docs/gpu-measured.md` (Products) names,
    /// a row's bits do not depend on those beside it.
    fn is_for_few(&self, rows: usize) -> bool {
        let (outputs, short) = (self.outputs(), self.columns <= SHORT);
        if rows <= FEW {
            return true;
        }
        if rows > MOST_ROWS {
            return rows <= SOME && outputs < NARROW && short;
        }
        // Gated, both matrices have as many.
        let wide_gates = rows > MOST_GATED && self.gated() && outputs > 1024 && self.columns <= 1024;
        outputs < MANY && !wide_gates
    }

    /// Blocks of a kernel.
    fn blocks(&self, Tiled { rows, outputs, .. }: &Tiled) -> usize {
        self.tiles(*outputs).saturating_mul(self.rows.div_ceil(*rows))
    }

    /// The kernel that takes the least time, as far as that is known from how many blocks a multiprocessor gets.
    fn tiled(&self, multiprocessors: usize, batch_invariant: bool) -> Tiled {
        let time = |kernel: &Tiled| {
            let (each, fit) = (self.blocks(kernel).div_ceil(multiprocessors), kernel.times.len());
            let last = (each % fit).checked_sub(1).map_or(0, |index| kernel.times[index]);
            (each / fit).saturating_mul(kernel.times[fit - 1]).saturating_add(last)
        };
        match self.rows {
            _ if batch_invariant && goes_through_rings(self.columns, self.outputs()) => IN_RINGS,
            _ if batch_invariant => IN_ORDER,
            ..=MOST_ROWS if self.outputs() >= MANY => WIDE,
            _ => TILES.into_iter().min_by_key(time).unwrap_or(SMALL),
        }
    }

    /// More rows than that.
    fn many<P: Place<Space: Is<Cuda>>>(&self, on: &Recorder<P>, kernels: &Kernels) -> Result<(), LaunchError> {
        let (what, multiprocessors) = ("project", (kernels.multiprocessors() as usize).max(1));
        let fastest = || self.tiled(multiprocessors, kernels.is_batch_invariant());
        let tiled = kernels.tile().and_then(|number| TILES.get(number).copied()).unwrap_or_else(fastest);
        let (blocks, Tiled { kernel, threads, shared, .. }) = (self.blocks(&tiled), tiled);
        require(blocks <= i32::MAX as usize, what, "a launch takes at most 2 billion tiles")?;
        // Kernels that start early would lie unevenly.
        let shared = even_shared(kernels.target(), kernels.multiprocessors(), blocks as u64, shared);
        let grid = Grid { blocks: (blocks as u32, 1, 1), threads, shared };
        let [(w0, _, n0), (w1, _, n1), (w2, _, n2)] = self.matrices;
        let [n0, n1, n2, columns, rows] = [n0, n1, n2, self.columns, self.rows].map(|size| (size as u32).word());
        let words = [self.out.0, self.inputs.x.0, w0, w1, w2, n0, n1, n2, columns, rows, u64::from(self.how as u32)];
        // They read the first of the matrices before they wait.
        let mut function = kernels.function(kernel);
        function.early &= self.at_rest;
        on.launch(&self.streams(), move |queue| {
            // SAFETY: the kernel's own arguments. It reads `rows` rows of inputs and the matrices, and writes rows x outputs of
            // `out`, which came from `&mut`: all checked to be as long. The caller's views (or the graph) keep them.
            unsafe { launch(queue, function, grid, &words) }
        })
    }
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
    Work::check("project", out, matrices, x, (rows, How::StoreBf16))?.launch(on, kernels)
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
    Work::check("project", out, matrices, x, (rows, How::StoreF32))?.launch(on, kernels)
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
    Work::check("project", out, &[matrix], x, (rows, How::AddF32))?.launch(on, kernels)
}

/// `out = act(gate x) * (up x)` in bf16: what [`project`] of both and [`gate`](super::gate()) give, without what lies between.
///
/// # Errors
/// As [`project`].
pub fn project_gated<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    [gate, up]: [Matrix<'_, P>; 2],
    x: Inputs<'_, P>,
    (rows, activation): (usize, Activation),
) -> Result<(), LaunchError> {
    let out = out.output::<bf16, P>(on);
    let out = (out.addr(), out.stream(), out.units());
    expect("project_gated: up rows", gate.rows, up.rows)?;
    let how = if activation == Activation::GeluTanh { How::GateGelu } else { How::GateSilu };
    Work::check("project_gated", out, &[gate, up], x, (rows, how))?.launch(on, kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_those_of_a_batch_of_decodes() {
        assert!(is_few(1, 576) && is_few(16, usize::MAX));
        assert!(!is_few(17, 8));
    }

    fn work(rows: usize, columns: usize, outputs: [usize; 3], how: How) -> Work {
        let inputs = Staged { x: (0, 0), norm: (0, 0), epsilon: 0.0 };
        Work {
            out: (0, 0),
            inputs,
            matrices: outputs.map(|outputs| (0, 0, outputs)),
            at_rest: true,
            columns,
            rows,
            how,
        }
    }

    #[test]
    fn prompts_are_multiplied_by_the_kernel_that_was_fastest() {
        let on_h200 = |rows, columns, outputs, how| work(rows, columns, outputs, how).tiled(132, false);
        // SmolLM2's, and a large model's.
        let rows = [100, 256, 512, 1024, 2048, 8192];
        let heads = |rows| on_h200(rows, 576, [576, 192, 192], How::StoreBf16);
        assert_eq!(rows.map(heads), [LEAST, LEAST, SMALL, HIGH, HIGH, LARGER]);
        let gated = |rows| on_h200(rows, 576, [1536, 0, 0], How::GateSilu);
        assert_eq!(rows.map(gated), [SMALL, MIDDLE, MIDDLE, LARGER, LARGE, LARGE]);
        let down = |rows| on_h200(rows, 1536, [576, 0, 0], How::AddF32);
        assert_eq!(rows.map(down), [LEAST, LEAST, SMALL, MIDDLE, MIDDLE, HUGE]);
        assert_eq!(on_h200(8192, 8192, [8192, 0, 0], How::StoreBf16), LARGE);
        assert_eq!(on_h200(40, 576, [49_152, 0, 0], How::StoreF32), WIDE);
        assert_eq!(on_h200(64, 576, [1536, 0, 0], How::GateSilu), LEAST);
        let invariant = |columns, outputs| work(8192, columns, [outputs, 0, 0], How::StoreBf16).tiled(132, true);
        assert_eq!(
            [invariant(2048, 8192), invariant(4096, 4096), invariant(4096, 8192)],
            [IN_ORDER, IN_ORDER, IN_RINGS]
        );
    }

    #[test]
    fn rows_of_a_batch_have_the_kernels_that_were_faster() {
        let few = |rows, columns, outputs, how| work(rows, columns, outputs, how).is_for_few(rows);
        assert!([16, 64].iter().all(|rows| few(*rows, 576, [576, 192, 192], How::StoreBf16)));
        assert!(!few(65, 576, [576, 192, 192], How::StoreBf16) && !few(40, 576, [49_152, 0, 0], How::StoreF32));
        assert!(few(48, 576, [1536, 0, 0], How::GateSilu) && !few(49, 576, [1536, 0, 0], How::GateSilu));
        assert!(few(96, 1536, [576, 0, 0], How::AddF32) && !few(97, 1536, [576, 0, 0], How::AddF32));
        assert!(!few(96, 4096, [576, 0, 0], How::AddF32));
    }

    #[test]
    fn tiles_fit_into_a_block_of_the_smallest_device() {
        for Tiled { kernel, rows, outputs, shared, times, .. } in TILES.into_iter().chain([IN_ORDER, IN_RINGS]) {
            // A whole number of stages of both operands' tiles, within what sm_120 gives a block; and the sums that change hands.
            let (elements, sums) = (
                if kernel == Kernel::Gemm192x192 { 32 } else { 64 },
                if kernel == Kernel::Gemm32x64 { rows * outputs * 4 } else { 0 },
            );
            let (stage, ring) = ((rows + outputs) as u32 * elements * 2, shared - sums as u32);
            assert!(ring.is_multiple_of(stage) && ring / stage >= 3 && shared <= 101_376, "{kernel:?}");
            // As many blocks as have times run at once on an H200.
            assert!(times.len() as u32 * (shared + 1024) <= 228 << 10, "{kernel:?}");
        }
    }
}
