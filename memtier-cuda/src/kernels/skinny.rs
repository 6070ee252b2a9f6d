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

/// As many outputs as a vocabulary has: what the rows of a batch read of the weights counts, more than how many blocks there are.
pub(super) const MANY: usize = 16_384;

/// A kernel of `skinny.cu`, with what a block of it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    kernel: Kernel,
    /// Rows of inputs.
    rows: usize,
    /// Outputs; gated, half as many of either matrix. Of a kernel whose warps go from tile to tile, those of all its warps.
    outputs: usize,
    warps: u32,
    /// Bytes of shared memory.
    shared: u32,
    /// Blocks of a multiprocessor that take all tiles among them.
    resident: Option<usize>,
}

/// Sums of all warps in shared memory.
const fn plain(kernel: Kernel, rows: usize, outputs: usize, warps: u32) -> Variant {
    Variant { kernel, rows, outputs, warps, shared: warps * rows as u32 * 64, resident: None }
}

/// A ring of three stages, each as many KiB for a warp as the second number says.
const fn ring(kernel: Kernel, rows: usize, outputs: usize, (warps, kib): (u32, u32)) -> Variant {
    Variant { kernel, rows, outputs, warps, shared: (3 * warps * kib) << 10, resident: None }
}

/// A ring of four lines of 2 KiB for each of eight warps, which make 16 outputs each.
const fn tiles(kernel: Kernel, rows: usize) -> Variant {
    Variant { kernel, rows, outputs: 8 * 16, warps: 8, shared: 64 << 10, resident: Some(3) }
}

const N1: Variant = plain(Kernel::ProjectN1, 8, 16, 8);
const N1_DEEP: Variant = plain(Kernel::ProjectN1Deep, 8, 16, 16);
const N2: Variant = plain(Kernel::ProjectN2, 16, 16, 8);
const N2_SIDE: Variant = plain(Kernel::ProjectN2Side, 16, 32, 8);
const N4: Variant = plain(Kernel::ProjectN4, 32, 16, 8);
const RING_N1_DEEP: Variant = ring(Kernel::RingN1Deep, 8, 16, (16, 2));
const RING_N1: Variant = ring(Kernel::RingN1, 8, 32, (8, 4));
const RING_N2: Variant = ring(Kernel::RingN2, 16, 32, (8, 4));
const RING_N2_SIDE: Variant = ring(Kernel::RingN2Side, 16, 64, (8, 4));
const TILES_N1: Variant = tiles(Kernel::TilesN1, 8);
const TILES_N2: Variant = tiles(Kernel::TilesN2, 16);
const NORMED_N1: Variant = plain(Kernel::ProjectNormedN1, 8, 16, 8);
const NORMED_N2: Variant = plain(Kernel::ProjectNormedN2, 16, 16, 8);

/// The kernel for so many rows of inputs, of so many elements, and so many outputs: the one that was fastest of several on an H200,
/// 30 November 2026. `cargo xtask gpu --bench` (`gpu_bars_gemm`) prints what they take.
fn choose(rows: usize, columns: usize, outputs: usize, normed: bool, invariant: bool) -> Variant {
    let (eight, sixteen) = (rows <= 8, rows <= 16);
    // In the batch-invariant mode, rows of one length to as many outputs take their elements in one order. By default they do too
    // where nothing is faster.
    match (columns, outputs) {
        _ if normed && eight => NORMED_N1,
        _ if normed => NORMED_N2,
        (..=1024, MANY..) if eight => TILES_N1,
        // Beyond that only in the mode: otherwise others are faster.
        (..=1024, MANY..) if sixteen || invariant => TILES_N2,
        (..=1024, _) if eight => N1,
        (..=1024, 1025..) if rows > FEW && !invariant => N2_SIDE,
        (..=1024, _) => N2,
        // Many blocks hide each other's ends; few of them need more warps.
        (1025..=2048, _) if eight && !invariant => N1_DEEP,
        (1025..=2048, _) if eight => N1,
        (1025..=2048, _) => N2,
        (2049.., 6144..) if eight => RING_N1,
        (2049.., 6144..) if invariant => RING_N2,
        (2049.., _) if eight && !invariant => RING_N1_DEEP,
        (2049.., _) if eight => N1,
        (2049.., 12_288..) if sixteen => RING_N2_SIDE,
        (2049.., 6144..) if sixteen => RING_N2,
        (2049.., _) if sixteen || invariant => N2,
        (2049.., _) => N4,
    }
}

/// Whether the batch-invariant mode takes rows of so many elements, to so many outputs, 64 elements at a time, and not 128.
pub(super) fn goes_through_rings(columns: usize, outputs: usize) -> bool {
    choose(1, columns, outputs, false, true) == RING_N1
}

/// Launches a projection of any number of rows.
pub(super) fn skinny<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    work: &Work,
) -> Result<(), LaunchError> {
    let what = "project";
    let (normed, (norm, _)) = (work.inputs.norm.0 != 0, work.inputs.norm);
    let variant = choose(work.rows, work.columns, work.outputs(), normed, kernels.is_batch_invariant());
    let Variant { kernel, rows, outputs, warps, shared, resident } = variant;
    let blocks = match resident {
        // A warp's tiles are as many apart as there are warps: no block is without one.
        Some(each) => (each * kernels.multiprocessors() as usize).min(work.tiles(16).div_ceil(warps as usize)),
        None => work.tiles(outputs),
    };
    let blocks = (narrow(what, blocks)?, narrow(what, work.rows.div_ceil(rows))?, 1);
    require(blocks.1 <= 65_535, what, "a launch takes at most half a million rows")?;
    let grid = Grid { blocks, threads: warps * 32, shared };
    let [(w0, _, n0), (w1, _, n1), (w2, _, n2)] = work.matrices;
    let [n0, n1, n2, columns, rows] = [n0, n1, n2, work.columns, work.rows].map(|size| (size as u32).word());
    let (out, x, how) = (work.out.0, work.inputs.x.0, u64::from(work.how as u32));
    // They read the first of the matrices before they wait.
    let mut function = kernels.function(kernel);
    function.early &= work.at_rest;
    if normed {
        let words = [out, x, w0, w1, w2, norm, n0, n1, n2, columns, rows, how, work.inputs.epsilon.word()];
        return on.launch(&work.streams(), move |queue| {
            // SAFETY: the kernel's own arguments. It reads `rows` rows of inputs, the norm's weight and the matrices, and
            // writes rows x outputs of `out`, which came from `&mut`: all checked to be as long. The caller's views (or the
            // graph) keep them.
            unsafe { launch(queue, function, grid, &words) }
        });
    }
    let words = [out, x, w0, w1, w2, n0, n1, n2, columns, rows, how];
    on.launch(&work.streams(), move |queue| {
        // SAFETY: as above; there is no norm.
        unsafe { launch(queue, function, grid, &words) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [(usize, usize); 7] =
        [(576, 960), (1536, 576), (8192, 8192), (4096, 14_336), (14_336, 4096), (576, 49_152), (4096, 128_256)];

    /// Kernels with one order of a sum.
    fn order(variant: Variant) -> usize {
        // Eight warps, 128 elements at a time; eight warps, 64; and others.
        let orders: [&[Variant]; 5] = [
            &[N1, N2, TILES_N1, TILES_N2, NORMED_N1, NORMED_N2],
            &[RING_N1, RING_N2],
            &[N1_DEEP],
            &[RING_N1_DEEP],
            &[RING_N2_SIDE, N2_SIDE, N4],
        ];
        orders.iter().position(|order| order.contains(&variant)).unwrap()
    }

    #[test]
    fn in_the_batch_invariant_mode_a_row_is_summed_in_one_order() {
        for (columns, outputs) in SHAPES {
            let first = choose(1, columns, outputs, false, true);
            for rows in 2..100 {
                let variant = choose(rows, columns, outputs, false, true);
                assert_eq!(order(variant), order(first), "{rows} x {columns} to {outputs}: {variant:?}, {first:?}");
                assert!(order(variant) < 2 && (variant.resident.is_none() || columns <= 1024));
            }
        }
    }

    #[test]
    fn by_default_rows_have_the_bits_that_documents_promise() {
        for (columns, outputs) in SHAPES {
            let (first, most) = (
                choose(1, columns, outputs, false, false),
                match columns {
                    ..=1024 if outputs <= 1024 => 64,
                    ..=1024 => 16,
                    2049.. if (6144..12_288).contains(&outputs) => 16,
                    _ => 8,
                },
            );
            for rows in 2..=most {
                let variant = choose(rows, columns, outputs, false, false);
                assert_eq!(order(variant), order(first), "{rows} x {columns} to {outputs}: {variant:?}, {first:?}");
            }
        }
    }

    #[test]
    fn every_number_of_rows_has_a_kernel_that_fits_it() {
        for rows in 1..=64 {
            for (columns, outputs) in SHAPES {
                for normed in [false, true] {
                    let variant = choose(rows, columns, outputs, normed, false);
                    // Sums of all warps have room too.
                    assert!(variant.rows >= rows.min(8) && variant.warps * variant.rows as u32 * 64 <= variant.shared);
                    assert!(variant.shared <= 99 << 10, "{variant:?}: within what sm_120 gives a block");
                }
            }
        }
    }
}
