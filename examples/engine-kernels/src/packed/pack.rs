//! From the file's rows to packed groups.

use std::ops::Range;

use super::{GROUP_ROWS, Layout, ScaleKind, checked_group_bytes, groups, high_place, low_place};
use crate::blocks::Block;
use crate::error::{KernelError, expect, product};
use crate::format::Format;
use crate::threads::{Shares, Threads};

/// Packs a whole matrix: `src` is its raw rows, `dst` has [`packed_bytes`](super::packed_bytes).
///
/// # Errors
///
/// [`KernelError`] where blocks do not divide `cols` or a slice has the wrong length; `dst` is then untouched.
pub fn pack(format: Format, rows: usize, cols: usize, src: &[u8], dst: &mut [u8]) -> Result<(), KernelError> {
    pack_groups(format, rows, cols, 0..groups(rows), src, dst)
}

/// Packs the groups `range` of a matrix of `rows` x `cols`: `src` is the raw rows of these groups only (from row
/// `16 * range.start` to `16 * range.end` or the matrix's end), `dst` the bytes of these groups only. Ranges may be packed
/// in any order and on any threads.
///
/// # Errors
///
/// [`KernelError`] where blocks do not divide `cols`, the range leaves the matrix or a slice has the wrong length; `dst`
/// is then untouched.
pub fn pack_groups(
    format: Format,
    rows: usize,
    cols: usize,
    range: Range<usize>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), KernelError> {
    let group_bytes = checked_group_bytes(format, cols)?;
    let row_bytes = format.checked_row_bytes(cols)?;
    if range.end > groups(rows) || range.start > range.end {
        let limit = groups(rows) as u64;
        return Err(KernelError::Index { what: "group range", limit, found: range.end.max(range.start) as u64 });
    }
    // Within the matrix: neither product can exceed what `rows` itself fits in.
    let range_rows = (range.end * GROUP_ROWS).min(rows).saturating_sub(range.start * GROUP_ROWS);
    expect("raw bytes to pack", product("raw bytes", range_rows, row_bytes)?, src.len())?;
    expect("packed bytes", product("packed bytes", range.len(), group_bytes)?, dst.len())?;
    for (src, dst) in src.chunks(GROUP_ROWS * row_bytes).zip(dst.chunks_exact_mut(group_bytes)) {
        pack_group(format, row_bytes, src, dst);
    }
    Ok(())
}

/// [`pack`] on all threads.
///
/// # Errors
///
/// As [`pack`].
pub fn pack_parallel(
    threads: &Threads,
    format: Format,
    rows: usize,
    cols: usize,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), KernelError> {
    let group_bytes = checked_group_bytes(format, cols)?;
    let row_bytes = format.checked_row_bytes(cols)?;
    expect("raw bytes to pack", product("raw bytes", rows, row_bytes)?, src.len())?;
    expect("packed bytes", product("packed bytes", groups(rows), group_bytes)?, dst.len())?;
    let shares = Shares::new(dst);
    threads.pieces(groups(rows), &|group| {
        let src = &src[group * GROUP_ROWS * row_bytes..];
        let src = &src[..src.len().min(GROUP_ROWS * row_bytes)];
        // SAFETY: each group is one piece, and groups do not overlap.
        let dst = unsafe { shares.part(group * group_bytes, group_bytes) };
        pack_group(format, row_bytes, src, dst);
    });
    Ok(())
}

/// Packs up to 16 raw rows into one group.
fn pack_group(format: Format, row_bytes: usize, src: &[u8], dst: &mut [u8]) {
    // Whatever no row writes is padding: zero scales make padded rows zero.
    dst.fill(0);
    match Layout::of(format) {
        Layout::Float(2) => pack_floats::<2>(src, row_bytes, dst),
        Layout::Float(_) => pack_floats::<4>(src, row_bytes, dst),
        Layout::Quant { low, high, scales } => {
            let line_bytes = 64 * (low + high);
            let mut block = Block::new();
            for (row, raw) in src.chunks_exact(row_bytes).enumerate() {
                let units = dst.chunks_mut(scales.bytes() + scales.blocks() * line_bytes);
                for (raw, unit) in raw.chunks(raw_unit_bytes(format)).zip(units) {
                    let (scale_bytes, lines) = unit.split_at_mut(scales.bytes());
                    let mut lines = lines.chunks_exact_mut(line_bytes);
                    for (index, raw) in raw.chunks_exact(format.block_bytes()).enumerate() {
                        block.read(format, raw);
                        write_scales(&block, scales, index, row, scale_bytes);
                        let quants = block.quants[..format.block_elements()].chunks_exact(32);
                        for (quants, lines) in quants.zip(&mut lines) {
                            write_quants(quants, low, high, row, lines);
                        }
                    }
                }
            }
        }
    }
}

/// Transposes up to 16 rows of `N`-byte elements.
fn pack_floats<const N: usize>(src: &[u8], row_bytes: usize, dst: &mut [u8]) {
    let (columns, _) = dst.as_chunks_mut::<N>();
    for (row, raw) in src.chunks_exact(row_bytes).enumerate() {
        let (elements, _) = raw.as_chunks::<N>();
        for (column, element) in columns.chunks_exact_mut(GROUP_ROWS).zip(elements) {
            column[row] = *element;
        }
    }
}

/// Raw bytes of a row that make up one unit.
fn raw_unit_bytes(format: Format) -> usize {
    match Layout::of(format) {
        Layout::Quant { scales: ScaleKind::Half, .. } => 2 * format.block_bytes(),
        _ => format.block_bytes(),
    }
}

/// Writes the scales of the unit's raw block `index`.
fn write_scales(block: &Block, kind: ScaleKind, index: usize, row: usize, unit: &mut [u8]) {
    unit[2 * (GROUP_ROWS * index + row)..][..2].copy_from_slice(&block.d.to_le_bytes());
    if !kind.has_bytes() {
        if kind.has_min() {
            unit[2 * (GROUP_ROWS + row)..][..2].copy_from_slice(&block.m.to_le_bytes());
        }
        return;
    }
    let (head, bytes) = unit.split_at_mut(kind.head_bytes());
    if kind.has_min() {
        head[2 * (GROUP_ROWS + row)..][..2].copy_from_slice(&block.m.to_le_bytes());
    }
    for (index, pair) in bytes.chunks_exact_mut(2 * GROUP_ROWS).take(8).enumerate() {
        let (first, second) = (2 * index, 2 * index + 1);
        (pair[row], pair[GROUP_ROWS + row]) = match kind {
            ScaleKind::Half | ScaleKind::HalfMin => unreachable!("these have no byte scales"),
            ScaleKind::Bytes32Min => (block.scales[index] as u8, block.mins[index]),
            ScaleKind::Bytes16 => (block.scales[first] as u8, block.scales[second] as u8),
            ScaleKind::Nibbles16Min => (
                block.scales[first] as u8 | block.mins[first] << 4,
                block.scales[second] as u8 | block.mins[second] << 4,
            ),
        };
    }
}

/// Four equal bytes.
const fn bytes(value: u32) -> u32 {
    value * 0x0101_0101
}

fn write_quants(quants: &[u8], low: usize, high: usize, row: usize, lines: &mut [u8]) {
    let mut words = [0u32; 10];
    for (k, quad) in quants.chunks_exact(4).enumerate() {
        let quad = u32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]]);
        let place = low_place(low, high, k);
        words[place.line] |= (quad & bytes(0xff >> (8 - low))) << place.shift;
        if high > 0 {
            let place = high_place(low, high, k);
            words[place.line] |= (quad >> low & bytes((1 << high) - 1)) << place.shift;
        }
    }
    for (line, word) in lines.chunks_exact_mut(64).zip(words) {
        line[4 * row..][..4].copy_from_slice(&word.to_le_bytes());
    }
}
