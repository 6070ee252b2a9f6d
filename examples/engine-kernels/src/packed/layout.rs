//! Where everything lies in a packed group.
//!
//! A group of a quantised format is a sequence of units, each of some blocks of 32 columns: their scales, in multiples of
//! 64 bytes, then their quants. So a matmul reads a matrix as one stream, and every line of it once. "Sixteen" below means
//! one value for each row of the group, in row order.
//!
//! *Scales.* Q4_0, Q5_0, Q8_0: a unit has two blocks (the last one of a row may have one) and begins with sixteen f16
//! scales for each. Q4_1, Q5_1: a unit is a block and begins with sixteen f16 scales and sixteen f16 minimums. K formats: a
//! unit has eight blocks and begins with sixteen f16 scales, then sixteen f16 scales of minimums if the format has them,
//! then 32 bytes for each block: sixteen scales and sixteen minimums (Q4_K, Q5_K), or sixteen scales of the first 16
//! columns and sixteen of the last (Q3_K, Q6_K; Q2_K keeps the minimum in the upper nibble).
//!
//! *Quants*, for each block of 32 columns: 64-byte lines. A quad is 4 consecutive columns, one byte each; a line is
//! 16 quads, one for each row. 8-bit formats store the 8 quads of a block as 8 lines. With 4 low bits there are 4 lines;
//! line j holds quad j in the low nibbles and quad j + 4 in the high ones. With 2 low bits there are 2 lines; line j
//! holds quads 4j to 4j + 3, lowest bits first. One high bit is one line, before the low ones, whose bit k belongs to quad
//! k; two high bits are two lines like those of 2 low bits, one before and one after the low lines. This is the order in
//! which they are needed: a prefetcher follows it. Centred formats store unsigned quants, value + bias.
//!
//! Float formats: for each column, sixteen elements.

use super::GROUP_ROWS;
use crate::format::Format;

/// What scales a unit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleKind {
    /// An f16 scale for 32 columns.
    Half,
    /// An f16 scale and minimum for 32 columns.
    HalfMin,
    /// Byte scales and minimums for 32 columns, f16 factors of both for 256.
    Bytes32Min,
    /// Signed byte scales for 16 columns, an f16 factor for 256.
    Bytes16,
    /// Nibble scales and minimums for 16 columns, f16 factors of both for 256.
    Nibbles16Min,
}

impl ScaleKind {
    /// Blocks of 32 columns in a unit, except perhaps the last.
    pub(crate) const fn blocks(self) -> usize {
        match self {
            ScaleKind::Half => 2,
            ScaleKind::HalfMin => 1,
            _ => 8,
        }
    }

    /// Whether elements have a minimum.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, ScaleKind::HalfMin | ScaleKind::Bytes32Min | ScaleKind::Nibbles16Min)
    }

    /// Whether scales are bytes with a factor for 256 columns.
    pub(crate) const fn has_bytes(self) -> bool {
        !matches!(self, ScaleKind::Half | ScaleKind::HalfMin)
    }

    /// Bytes before the byte scales.
    pub(crate) const fn head_bytes(self) -> usize {
        if self.has_min() { 4 * GROUP_ROWS } else { 2 * GROUP_ROWS }
    }

    /// Bytes of a unit's scales.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            ScaleKind::Half | ScaleKind::HalfMin => 64,
            _ => (self.head_bytes() + 8 * 2 * GROUP_ROWS).next_multiple_of(64),
        }
    }
}

/// The layout of a packed group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Bytes of an element.
    Float(usize),
    /// Low bits (2, 4 or 8), high bits (0, 1 or 2) and scales.
    Quant { low: usize, high: usize, scales: ScaleKind },
}

impl Layout {
    pub(crate) const fn of(format: Format) -> Layout {
        let (low, high, scales) = match format {
            Format::F32 => return Layout::Float(4),
            Format::F16 | Format::BF16 => return Layout::Float(2),
            Format::Q4_0 => (4, 0, ScaleKind::Half),
            Format::Q4_1 => (4, 0, ScaleKind::HalfMin),
            Format::Q5_0 => (4, 1, ScaleKind::Half),
            Format::Q5_1 => (4, 1, ScaleKind::HalfMin),
            Format::Q8_0 => (8, 0, ScaleKind::Half),
            Format::Q2_K => (2, 0, ScaleKind::Nibbles16Min),
            Format::Q3_K => (2, 1, ScaleKind::Bytes16),
            Format::Q4_K => (4, 0, ScaleKind::Bytes32Min),
            Format::Q5_K => (4, 1, ScaleKind::Bytes32Min),
            Format::Q6_K => (4, 2, ScaleKind::Bytes16),
        };
        Layout::Quant { low, high, scales }
    }

    /// Bytes of a group of rows of `cols` columns that blocks divide, or `None` on overflow.
    pub(crate) const fn group_bytes(self, cols: usize) -> Option<usize> {
        let bytes = match self {
            Layout::Float(element) => cols.checked_mul(element * GROUP_ROWS),
            Layout::Quant { low, high, scales } => {
                let blocks = cols / 32;
                let quants = blocks.checked_mul(64 * (low + high));
                match (quants, blocks.div_ceil(scales.blocks()).checked_mul(scales.bytes())) {
                    (Some(quants), Some(scales)) => quants.checked_add(scales),
                    _ => None,
                }
            }
        };
        match bytes {
            Some(bytes) => bytes.checked_next_multiple_of(64),
            None => None,
        }
    }
}

/// Where a part of a quad lies: its line, and how far its bits are shifted left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) shift: usize,
}

/// Where the low bits of quad `k` (0 to 7) lie, with `low` and `high` bits.
#[inline(always)]
pub(crate) const fn low_place(low: usize, high: usize, k: usize) -> Place {
    let first = if high > 0 { 1 } else { 0 };
    match low {
        8 => Place { line: first + k, shift: 0 },
        4 => Place { line: first + k % 4, shift: k / 4 * 4 },
        _ => Place { line: first + k / 4, shift: k % 4 * 2 },
    }
}

/// Where the high bits of quad `k` (0 to 7) lie, with `low` and `high` bits, of which there are some.
#[inline(always)]
pub(crate) const fn high_place(low: usize, high: usize, k: usize) -> Place {
    match high {
        1 => Place { line: 0, shift: k },
        _ => Place { line: if k < 4 { 0 } else { 1 + low }, shift: k % 4 * 2 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cost_little_more_than_the_file() {
        for format in Format::ALL {
            let cols = 2048;
            let file = GROUP_ROWS * format.row_bytes(cols).unwrap();
            let packed = Layout::of(format).group_bytes(cols).unwrap();
            let percent = packed as f64 / file as f64 * 100.0 - 100.0;
            assert!((0.0..11.0).contains(&percent), "{format}: {percent:.1} %");
        }
    }

    #[test]
    fn absurd_columns_overflow() {
        assert_eq!(Layout::of(Format::Q8_0).group_bytes(usize::MAX / 32 * 32), None);
        assert_eq!(Layout::of(Format::F32).group_bytes(usize::MAX), None);
    }
}
