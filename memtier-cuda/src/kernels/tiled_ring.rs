//! Which kernel of `quant_ring.cu` or `quant_ring4.cu` multiplies a large matrix of few bits.

use super::{Tiling, entries::Kernel};

/// A kernel, and what its blocks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    pub(super) kernel: Kernel,
    /// Rows of inputs of a block.
    pub(super) inputs: usize,
    /// Its outputs; gated, half of either matrix.
    pub(super) tile: usize,
    pub(super) warps: u32,
    /// Blocks that share those outputs' rows of weights: a cluster.
    pub(super) parts: u32,
    /// Bytes of shared memory.
    pub(super) shared: u32,
}

/// Elements of a row from which each warp of a block has two tiles at least.
const LONG: usize = 2048;

/// Elements of a row from which `quant_ring4.cu` is the faster one for more than 8 rows; and for up to 8 of few outputs.
const LONG_OF_4: (usize, usize) = (8192, 4096);

/// How much of a matrix one multiprocessor has.
#[derive(Clone, Copy)]
enum Share {
    /// Two tiles of 16 outputs; four; more.
    Pair,
    Quad,
    Many,
}

/// The kernel for `outputs` of `columns` elements (gated, of both matrices) and this many rows of inputs, or `None` where too little of the
/// matrix would be left for a multiprocessor. By rows it depends on whether they are more than 8. They are those that were
/// fastest of several on an H200, 30 November 2026, at 8192 x 8192, 14336 x 4096 and 4096 x 14336; `cargo xtask gpu --bench` (`gpu_bars_gemm`)
/// prints what they take. Of a device its multiprocessors count, and whether blocks form clusters: on `sm_120` none has more than one block.
pub(super) fn ring(
    (multiprocessors, clusters): (usize, bool),
    tiling: Tiling,
    (rows, outputs, columns): (usize, usize, usize),
    gated: bool,
) -> Option<Variant> {
    let (strips, multiprocessors) = (outputs.div_ceil(16), multiprocessors.max(1));
    // Blocks of two strips keep three of four multiprocessors busy at least.
    if columns < LONG || strips * 2 < multiprocessors * 3 {
        return None;
    }
    let share = match strips.div_ceil(multiprocessors) {
        0..=2 => Share::Pair,
        3..=4 => Share::Quad,
        // Seven strips are no pairs of a gate and what it gates.
        each if rows > 8 && bits(tiling) < 8 && (gated || each.div_ceil(4) * 4 < each.div_ceil(7) * 7) => Share::Quad,
        _ => Share::Many,
    };
    let two = rows > 8;
    let of_4 = matches!(tiling, Tiling::Q4) && columns.is_multiple_of(128);
    let of_4 = if of_4 { variant_of_4(two, share, columns) } else { None };
    Some(of_4.filter(|it| it.parts == 1 || clusters).unwrap_or_else(|| variant(tiling, two, share)))
}

/// As `quant_ring4.cu` makes them: what is faster than `quant_ring.cu` where a row is a multiple of 128 elements.
fn variant_of_4(two: bool, share: Share, columns: usize) -> Option<Variant> {
    let (kernel, strips, warps, parts) = match (share, two) {
        (Share::Pair, false) if columns >= LONG_OF_4.1 => (Kernel::Two4N1Pair, 2, 16, 1),
        (Share::Quad, false) => (Kernel::Two4N1Quad, 2, 8, 1),
        (Share::Pair, true) if columns >= LONG_OF_4.0 => (Kernel::Two4N2Pair, 4, 8, 2),
        (Share::Quad, true) if columns >= LONG_OF_4.0 => (Kernel::Two4N2Quad, 4, 8, 1),
        _ => return None,
    };
    let inputs = if two { 16 } else { 8 };
    // Two stages of two tiles of each strip; half of the sums of the other part.
    let told = if parts == 1 { 0 } else { strips * inputs * 32 };
    let shared = warps * strips * 4 * Tiling::Q4.tile_bytes() as u32 + told;
    Some(Variant { kernel, inputs: inputs as usize, tile: strips as usize * 16, warps, parts, shared })
}

/// Bits of a weight.
fn bits(tiling: Tiling) -> usize {
    match tiling {
        Tiling::Q4 => 4,
        Tiling::Q5 => 5,
        Tiling::Q6 => 6,
        Tiling::Q8 | Tiling::F8 => 8,
    }
}

/// As `quant_ring.cu` makes them.
fn variant(tiling: Tiling, two: bool, share: Share) -> Variant {
    use Kernel::*;
    let all = match tiling {
        Tiling::Q4 => [[Ring4N1Pair, Ring4N1Quad, Ring4N1Many], [Ring4N2Pair, Ring4N2Quad, Ring4N2Many]],
        Tiling::Q5 => [[Ring5N1Pair, Ring5N1Quad, Ring5N1Many], [Ring5N2Pair, Ring5N2Quad, Ring5N2Many]],
        Tiling::Q6 => [[Ring6N1Pair, Ring6N1Quad, Ring6N1Many], [Ring6N2Pair, Ring6N2Quad, Ring6N2Many]],
        Tiling::Q8 => [[Ring8N1Pair, Ring8N1Quad, Ring8N1Many], [Ring8N2Pair, Ring8N2Quad, Ring8N2Many]],
        Tiling::F8 => [[Ring9N1Pair, Ring9N1Quad, Ring9N1Many], [Ring9N2Pair, Ring9N2Quad, Ring9N2Many]],
    };
    let wide = bits(tiling) == 8;
    // Strips of a warp, warps, neighbours among them that have other strips, stages; whether inputs go through a ring, too.
    let (strips, warps, side, stages, inputs) = match (share, two) {
        (Share::Pair, _) => (2, 16, 1, 2, two && !wide),
        (Share::Quad, _) if wide => (2, 16, 2, 2, false),
        (Share::Quad, false) if !matches!(tiling, Tiling::Q6) => (4, 16, 1, 2, false),
        (Share::Quad, false) => (4, 12, 1, 2, false),
        (Share::Quad, true) if matches!(tiling, Tiling::Q6) => (4, 8, 1, 2, true),
        (Share::Quad, true) => (4, 12, 1, 2, true),
        (Share::Many, false) => (4, 8, 1, 2, false),
        (Share::Many, true) if wide => (2, 8, 2, 3, false),
        // Eight warps of so many strips would have more registers than there are on some devices.
        (Share::Many, true) if matches!(tiling, Tiling::Q6) => (7, 4, 1, 3, true),
        (Share::Many, true) => (7, 8, 1, 2, true),
    };
    let kernel = all[usize::from(two)][share as usize];
    let rows = if two { 16 } else { 8 };
    // Of bf16, 64 elements of each row.
    let of_inputs = if inputs { (stages - 1) * rows * 128 } else { 0 };
    let shared = warps * (stages * strips * tiling.tile_bytes() as u32 + of_inputs);
    Variant { kernel, inputs: rows as usize, tile: (strips * side * 16) as usize, warps, parts: 1, shared }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{entries::ENTRIES, sources::SOURCES};

    const TILINGS: [Tiling; 5] = [Tiling::Q4, Tiling::Q5, Tiling::Q6, Tiling::Q8, Tiling::F8];

    #[test]
    fn variants_are_those_of_the_source() {
        let source = SOURCES.iter().find(|(name, _)| *name == "quant_ring").unwrap().1;
        let mut entries = 0;
        for line in source.lines().filter(|line| line.starts_with("ENTRY(")) {
            let words: Vec<_> = line[6..].split([',', ')']).map(str::trim).collect();
            let number = |at: usize| words[at].parse::<usize>().unwrap();
            let tiling = TILINGS[[4, 5, 6, 8, 9].iter().position(|it| *it == number(0)).unwrap()];
            let share = match words[2] {
                "pair" => Share::Pair,
                "quad" => Share::Quad,
                _ => Share::Many,
            };
            let found = variant(tiling, number(1) == 2, share);
            let (strips, warps, side, stages) = (number(3), number(4), number(5), number(6));
            let inputs = number(7) * (stages - 1) * number(1) * 1024;
            let name = format!("quant_ring_q{}_n{}_{}", words[0], words[1], words[2]);
            assert_eq!(ENTRIES[found.kernel as usize].name, name);
            assert_eq!((found.inputs, found.tile), (number(1) * 8, strips * side * 16), "{name}");
            assert_eq!(found.warps as usize, warps, "{name}");
            assert_eq!(found.shared as usize, warps * (stages * strips * tiling.tile_bytes() + inputs), "{name}");
            // What a block may have on every device, and what its sums need.
            assert!(found.shared <= 101_376 && found.shared as usize >= warps * strips * found.inputs * 64, "{name}");
            entries += 1;
        }
        assert_eq!(entries, 30);
    }

    #[test]
    fn variants_of_4_bits_are_those_of_their_source() {
        let source = SOURCES.iter().find(|(name, _)| *name == "quant_ring4").unwrap().1;
        let mut entries = 0;
        for line in source.lines() {
            let halves = line.strip_prefix("HALVES_ENTRY(");
            let Some(words) = halves.or(line.strip_prefix("ENTRY(")) else { continue };
            let words: Vec<_> = words.split([',', ')']).map(str::trim).collect();
            let number = |at: usize| words[at].parse::<usize>().unwrap();
            let (inputs, strips, warps) = (number(0) * 8, number(2), number(3));
            let share = if words[1] == "pair" { Share::Pair } else { Share::Quad };
            let found = variant_of_4(inputs == 16, share, LONG_OF_4.0).unwrap();
            let name = format!("quant_ring4_n{}_{}", words[0], words[1]);
            assert_eq!(ENTRIES[found.kernel as usize].name, name);
            assert_eq!((found.inputs, found.tile, found.warps as usize), (inputs, strips * 16, warps), "{name}");
            assert_eq!(found.parts == 2, halves.is_some(), "{name}");
            let told = if halves.is_some() { strips * inputs * 8 * 4 } else { 0 };
            assert_eq!(found.shared as usize, warps * 2 * 2 * strips * Tiling::Q4.tile_bytes() + told, "{name}");
            assert!(found.shared <= 101_376 && found.shared as usize >= warps * strips * inputs * 64, "{name}");
            entries += 1;
        }
        assert_eq!(entries, 4);
    }

    #[test]
    fn large_matrices_lie_evenly() {
        let tile = |rows, outputs, columns, gated| {
            ring((132, true), Tiling::Q4, (rows, outputs, columns), gated).map(|it| (it.kernel, it.tile))
        };
        assert_eq!(tile(1, 8192, 8192, false), Some((Kernel::Two4N1Quad, 32)));
        assert_eq!(tile(8, 14_336, 4096, false), Some((Kernel::Ring4N1Many, 64)));
        assert_eq!(tile(9, 14_336, 4096, false), Some((Kernel::Ring4N2Many, 112)));
        assert_eq!(tile(16, 28_672, 4096, true), Some((Kernel::Ring4N2Quad, 64)));
        assert_eq!(tile(16, 8192, 8192, false), Some((Kernel::Two4N2Quad, 64)));
        assert_eq!(tile(4, 4096, 14_336, false), Some((Kernel::Two4N1Pair, 32)));
        // Rows of many are shared by two blocks, where they are long.
        assert_eq!(tile(9, 4096, 14_336, false), Some((Kernel::Two4N2Pair, 64)));
        assert_eq!(tile(9, 4096, 4096, false), Some((Kernel::Ring4N2Pair, 32)));
        // Not where a cluster has one block.
        let alone = ring((132, false), Tiling::Q4, (9, 4096, 14_336), false).unwrap();
        assert_eq!((alone.kernel, alone.parts), (Kernel::Ring4N2Pair, 1));
        // Rows that end in the middle of two tiles.
        assert_eq!(tile(1, 8192, 8192 + 64, false), Some((Kernel::Ring4N1Quad, 64)));
        // Short rows, few outputs.
        assert_eq!(tile(1, 49_152, 576, false), None);
        assert_eq!(tile(1, 1024, 8192, false), None);
        // Another device has other shares.
        let small = ring((2, true), Tiling::Q8, (1, 96, 2048), false).unwrap();
        assert_eq!(small.kernel, Kernel::Ring8N1Quad);
    }
}
