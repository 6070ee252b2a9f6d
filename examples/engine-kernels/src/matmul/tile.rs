//! What a tile function computes: one group of 16 rows of weights against a few rows of activations.
//!
//! Every tile function, whatever its level and its number of activation rows, does for each output exactly this:
//!
//! ```text
//! acc = 0
//! for each block of 32 columns, in order:
//!     for each part of the block that has its own scale (one, or two of 16 columns):
//!         dot  = sum of quant x activation byte over the part, less bias x sum of the bytes      exact, in i32
//!         acc  = fma(dot as f32, weight scale * activation scale, acc)
//!         acc  = fma(min, scaled sum of the part, acc)                                           where there are minimums
//! ```
//!
//! with `weight scale = d * scale` and `min = dmin * min` rounded to f32 first. Float formats do
//! `acc = fma(weight, activation, acc)` for each column in order. So an output's bits depend on its row of weights and its
//! row of activations alone.

use crate::format::Format;
use crate::isa::{Isa, Level};
use crate::packed::GROUP_ROWS;

/// The most activation rows that a tile function takes.
pub(super) const MAX_TILE_ROWS: usize = 8;

/// A tile's outputs: sixteen for each activation row. Aligned so that no register straddles two lines.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct TileOut(pub(super) [[f32; GROUP_ROWS]; MAX_TILE_ROWS]);

impl TileOut {
    pub(super) const fn new() -> TileOut {
        TileOut([[0.0; GROUP_ROWS]; MAX_TILE_ROWS])
    }
}

/// A tile's inputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile<'a> {
    /// The packed group.
    pub(super) weights: &'a [u8],
    /// Columns.
    pub(super) cols: usize,
    /// The first activation row to the last one's end: quantised records, or f32.
    pub(super) x: &'a [u8],
    /// Bytes from one activation row to the next.
    pub(super) x_stride: usize,
}

impl Tile<'_> {
    /// Checks that every access of a tile function of `rows` activation rows is in bounds.
    #[inline]
    pub(super) fn check(&self, rows: usize, group_bytes: usize, x_row_bytes: usize) {
        assert!(self.weights.len() >= group_bytes, "the weights hold the group");
        assert!(
            rows > 0 && self.x_stride >= x_row_bytes && self.x.len() / rows >= x_row_bytes,
            "the activations hold the tile"
        );
        assert!(self.x.len() >= (rows - 1) * self.x_stride + x_row_bytes, "the activations hold the tile");
    }
}

/// A tile function.
///
/// # Safety
///
/// The processor has the features of the level that the table was asked for.
pub(super) type TileFn = unsafe fn(&Tile<'_>, &mut TileOut);

/// The tile functions of a format: entry `n - 1` takes `n` activation rows.
pub(super) fn tiles(isa: Isa, format: Format) -> &'static [TileFn] {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => super::avx512::tiles(format),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::avx2::tiles(format),
        _ => super::portable::tiles(format),
    }
}
