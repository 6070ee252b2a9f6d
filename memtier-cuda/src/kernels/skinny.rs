//! Projections of few rows: which kernel, and its grid.

use memtier::{Cuda, Is, LaunchError, Place, Recorder};

use super::{entries::Kernel, narrow, project::Work, require};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// The most rows of inputs that are multiplied so by default, and the most that are normalised on the way.
pub(super) const MOST_ROWS: usize = 64;
/// The most for which that always pays.
pub(super) const FEW: usize = 16;

/// A kernel of `skinny.cu`, with what a block of it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    kernel: Kernel,
    /// Rows of inputs.
    rows: usize,
    /// Outputs; gated, half as many of either matrix.
    outputs: usize,
    warps: u32,
}

const fn variant(kernel: Kernel, rows: usize, outputs: usize, warps: u32) -> Variant {
    Variant { kernel, rows, outputs, warps }
}

// By number of rows, outputs, warps, warps beside each other, and elements that a warp takes at a time, in 32.
const N1: Variant = variant(Kernel::ProjectN1, 8, 16, 8);
const N1_DEEP: Variant = variant(Kernel::ProjectN1Deep, 8, 16, 16);
const N1_WIDE: Variant = variant(Kernel::ProjectN1Wide, 8, 16, 16);
const N1_MANY: Variant = variant(Kernel::ProjectN1Many, 8, 16, 8);
const N2: Variant = variant(Kernel::ProjectN2, 16, 16, 8);
const N2_PAIR: Variant = variant(Kernel::ProjectN2Pair, 16, 32, 8);
const N2_QUAD: Variant = variant(Kernel::ProjectN2Quad, 16, 64, 8);
const N2_SIDE: Variant = variant(Kernel::ProjectN2Side, 16, 32, 8);
const N4: Variant = variant(Kernel::ProjectN4, 32, 16, 8);
const NORMED_N1: Variant = variant(Kernel::ProjectNormedN1, 8, 16, 8);
const NORMED_N2: Variant = variant(Kernel::ProjectNormedN2, 16, 16, 8);

/// The kernel for so many rows of inputs, of so many elements, and so many outputs. Measured on an H200.
fn choose(rows: usize, columns: usize, outputs: usize, normed: bool, invariant: bool) -> Variant {
    // A row takes its elements in one order here, whatever rows are beside it.
    match (normed, rows <= 8) {
        (true, true) => return NORMED_N1,
        (true, false) => return NORMED_N2,
        _ if columns > 1024 && !invariant => {}
        _ if rows > FEW && outputs > 1024 && !invariant => return N2_SIDE,
        (false, true) => return N1,
        (false, false) => return N2,
    }
    match rows {
        // Many blocks hide each other's ends; few of them need more warps.
        0..=8 if columns <= 2048 => N1_DEEP,
        0..=8 if outputs <= 8192 => N1_WIDE,
        0..=8 => N1_MANY,
        9..=16 if columns <= 2048 => N2,
        9..=16 if outputs >= 12_288 => N2_QUAD,
        9..=16 if outputs >= 6144 => N2_PAIR,
        9..=16 => N2,
        _ if columns <= 2048 => N2,
        _ => N4,
    }
}

/// Launches a projection of any number of rows.
pub(super) fn skinny<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    work: &Work,
) -> Result<(), LaunchError> {
    let what = "project";
    let (normed, (norm, _)) = (work.inputs.norm.0 != 0, work.inputs.norm);
    let outputs = work.matrices.iter().map(|(.., rows)| rows).sum();
    let variant = choose(work.rows, work.columns, outputs, normed, kernels.is_batch_invariant());
    let Variant { kernel, rows, outputs, warps } = variant;
    let blocks = (narrow(what, work.tiles(outputs))?, narrow(what, work.rows.div_ceil(rows))?, 1);
    require(blocks.1 <= 65_535, what, "a launch takes at most half a million rows")?;
    // Sums of all warps.
    let grid = Grid { blocks, threads: warps * 32, shared: warps * rows as u32 * 16 * 4 };
    let [(w0, _, n0), (w1, _, n1), (w2, _, n2)] = work.matrices;
    let [n0, n1, n2, columns, rows] = [n0, n1, n2, work.columns, work.rows].map(|size| (size as u32).word());
    let (out, x, how) = (work.out.0, work.inputs.x.0, u64::from(work.how as u32));
    let kernels = kernels.clone();
    if normed {
        let words = [out, x, w0, w1, w2, norm, n0, n1, n2, columns, rows, how, work.inputs.epsilon.word()];
        return on.launch(&work.streams(), move |queue| {
            // SAFETY: the kernel's own arguments. It reads `rows` rows of inputs, the norm's weight and the matrices, and
            // writes rows x outputs of `out`, which came from `&mut`: all checked to be as long. The caller's views (or the
            // graph) keep them.
            unsafe { launch(queue, kernels.function(kernel), grid, &words) }
        });
    }
    let words = [out, x, w0, w1, w2, n0, n1, n2, columns, rows, how];
    on.launch(&work.streams(), move |queue| {
        // SAFETY: as above; there is no norm.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_batch_invariant_mode_a_row_is_summed_in_one_order() {
        for (columns, outputs) in [(576, 960), (1536, 576), (8192, 8192), (4096, 14_336), (14_336, 4096)] {
            for rows in 1..100 {
                // Eight warps, 128 elements at a time: no other kernel has that order.
                let variant = choose(rows, columns, outputs, false, true);
                assert!(variant == N1 || variant == N2, "{rows} x {columns} to {outputs}: {variant:?}");
            }
        }
    }

    #[test]
    fn every_number_of_rows_has_a_kernel_that_fits_it() {
        for rows in 1..=64 {
            for (columns, outputs) in [(576, 960), (1536, 576), (8192, 8192), (4096, 14_336), (14_336, 4096)] {
                for normed in [false, true] {
                    let variant = choose(rows, columns, outputs, normed, false);
                    assert!(variant.rows >= rows.min(8) && variant.warps * variant.rows as u32 * 64 <= 99 << 10);
                }
            }
        }
    }
}
