//! Which kernel of `quant_rows.cu` multiplies more than 16 rows with a matrix of few bits whose rows are short.

use super::{Tiling, entries::Kernel, tiled_ring::Variant};

/// The most elements of a row that these kernels were measured with.
const SHORT: usize = 2048;
/// As many outputs as a vocabulary has, or about that.
const MANY: usize = 6144;
/// Rows of inputs up to which the kernels for few rows are as fast: those of 4 and 8 bits read few outputs once for every eight rows, a vocabulary
/// once for every 16.
const SOME: usize = 32;
/// Warps of a block of `few`, at most.
const MOST_WARPS: usize = 12;
/// Blocks of a multiprocessor up to which one of 16 outputs by 16 rows is better than larger ones.
const MOST_BLOCKS: usize = 3;

/// What a block makes.
#[derive(Clone, Copy)]
enum Share {
    /// 16 outputs by 16 rows, 32 by 32, 64 by 64.
    Few,
    Even,
    Head,
}

/// The kernel for `outputs` of `columns` elements (gated, of both matrices) and this many rows of inputs; `None` where another is as fast. They are
/// those that were fastest of several on an H200, 30 November 2026, for SmolLM2-135M's and Gemma 3 270M's matrices by 17 to 128 rows.
pub(super) fn by_rows(
    multiprocessors: usize,
    tiling: Tiling,
    (rows, outputs, columns): (usize, usize, usize),
    gated: bool,
) -> Option<Variant> {
    if rows <= 16 || columns > SHORT {
        return None;
    }
    let blocks = outputs.div_ceil(16).saturating_mul(rows.div_ceil(16));
    let share = match outputs {
        _ if gated => Share::Even,
        MANY.. if rows <= SOME => return None,
        MANY.. => Share::Head,
        _ if blocks > multiprocessors.max(1).saturating_mul(MOST_BLOCKS) => Share::Even,
        _ if rows <= SOME && matches!(tiling, Tiling::Q4 | Tiling::Q8) => return None,
        _ => Share::Few,
    };
    variant(tiling, share, columns)
}

/// As `quant_rows.cu` makes them.
fn variant(tiling: Tiling, share: Share, columns: usize) -> Option<Variant> {
    use Kernel::*;
    let kernels = match tiling {
        Tiling::Q4 => [Rows4Few, Rows4Even, Rows4Head],
        Tiling::Q5 => [Rows5Few, Rows5Even, Rows5Head],
        Tiling::Q6 => [Rows6Few, Rows6Even, Rows6Head],
        Tiling::Q8 => [Rows8Few, Rows8Even, Rows8Head],
        Tiling::F8 => return None,
    };
    let kernel = kernels[share as usize];
    // Strips of a block, rows / 8, warps that share a row, stages; warps.
    let (strips, eights, parts, stages, warps) = match share {
        Share::Few => {
            // A tile for each warp of a block, or as many turns as it takes.
            let tiles = columns.div_ceil(64).max(1);
            let warps = tiles.div_ceil(tiles.div_ceil(MOST_WARPS)) as u32;
            return Some(Variant { kernel, inputs: 16, tile: 16, warps, shared: warps << 10, parts: 1 });
        }
        Share::Even => (2, 4, 3, 3, 6),
        Share::Head => (4, 8, 1, 4, if tiling == Tiling::Q6 { 4 } else { 2 }),
    };
    let shared = stages * parts * (eights * 1024 + strips * tiling.tile_bytes() as u32);
    Some(Variant { kernel, inputs: eights as usize * 8, tile: strips as usize * 16, warps, shared, parts: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{entries::ENTRIES, sources::SOURCES};

    const TILINGS: [Tiling; 4] = [Tiling::Q4, Tiling::Q5, Tiling::Q6, Tiling::Q8];

    #[test]
    fn variants_are_those_of_the_source() {
        let source = SOURCES.iter().find(|(name, _)| *name == "quant_rows").unwrap().1;
        let mut entries = 0;
        for line in source.lines().filter(|line| line.starts_with("ENTRY(")) {
            let words: Vec<_> =
                line[6..].split([',', ')', '<', '>']).map(str::trim).filter(|it| !it.is_empty()).collect();
            let number = |at: usize| words[at].parse::<usize>().unwrap();
            let tiling = TILINGS[[4, 5, 6, 8].iter().position(|it| *it == number(0)).unwrap()];
            let share = match words[1] {
                "few" => Share::Few,
                "even" => Share::Even,
                _ => Share::Head,
            };
            let found = variant(tiling, share, 768).unwrap();
            let name = format!("quant_rows_q{}_{}", words[0], words[1]);
            assert_eq!(ENTRIES[found.kernel as usize].name, name);
            assert_eq!(found.warps as usize * 32, number(2), "{name}");
            assert_eq!(number(0), number(5), "{name}");
            if let Share::Few = share {
                assert_eq!((found.inputs, found.tile, found.shared), (16, 16, found.warps * 1024));
            } else {
                let [strips, eights, across, parts, stages] = [6, 7, 8, 9, 10].map(number);
                assert_eq!((found.inputs, found.tile), (eights * 8, strips * across * 16), "{name}");
                assert_eq!(found.warps as usize, across * parts, "{name}");
                let stage = parts * (eights * 1024 + strips * across * tiling.tile_bytes());
                assert_eq!(found.shared as usize, stages * stage, "{name}");
                // The sums of all warps, where they are added.
                assert!(found.shared as usize >= parts * strips * across * eights * 512, "{name}");
            }
            assert!(found.shared <= 101_376, "{name}");
            entries += 1;
        }
        assert_eq!(entries, 12);
    }

    #[test]
    fn a_batch_of_decodes_reads_tiles_once() {
        let of = |tiling, rows, outputs, columns, gated| {
            by_rows(132, tiling, (rows, outputs, columns), gated).map(|it| (it.kernel, it.warps))
        };
        // SmolLM2's, at 64 requests.
        assert_eq!(of(Tiling::Q4, 64, 960, 576, false), Some((Kernel::Rows4Few, 9)));
        assert_eq!(of(Tiling::Q4, 64, 576, 1536, false), Some((Kernel::Rows4Few, 12)));
        assert_eq!(of(Tiling::Q4, 64, 3072, 576, true), Some((Kernel::Rows4Even, 6)));
        assert_eq!(of(Tiling::Q8, 64, 49_152, 576, false), Some((Kernel::Rows8Head, 2)));
        assert_eq!(of(Tiling::Q4, 128, 960, 576, false), Some((Kernel::Rows4Even, 6)));
        // Gemma 3's.
        assert_eq!(of(Tiling::Q6, 17, 640, 2048, false), Some((Kernel::Rows6Few, 11)));
        // Others are as fast, or were not beside them.
        assert_eq!(of(Tiling::Q4, 16, 3072, 576, true), None);
        assert_eq!(of(Tiling::Q4, 32, 960, 576, false), None);
        assert_eq!(of(Tiling::Q8, 32, 49_152, 576, false), None);
        assert_eq!(of(Tiling::Q4, 64, 4096, 4096, false), None);
        assert_eq!(of(Tiling::F8, 64, 960, 576, false), None);
    }
}
