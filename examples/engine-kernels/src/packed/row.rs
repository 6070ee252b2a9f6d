//! One row out of a packed matrix: embedding lookups share the bytes of the output head.

use super::{GROUP_ROWS, Layout, Packed, ScaleKind, high_place, low_place};
use crate::blocks::Block;
use crate::error::{KernelError, expect};
use crate::format::Format;
use crate::half::{bf16_to_f32, f16_to_f32};

/// Writes row `row` of the matrix into `out` (its columns): the same values as
/// [`dequantize_raw_row`](crate::dequantize_raw_row) gives for the raw row.
///
/// # Errors
///
/// [`KernelError`] where the row does not exist or `out` is not `cols` long.
pub fn dequantize_row(weights: &Packed<'_>, row: usize, out: &mut [f32]) -> Result<(), KernelError> {
    if row >= weights.rows() {
        return Err(KernelError::Index { what: "row", limit: weights.rows() as u64, found: row as u64 });
    }
    expect("dequantised row", weights.cols(), out.len())?;
    let group = weights.group(row / GROUP_ROWS);
    let row = row % GROUP_ROWS;
    let format = weights.format();
    match Layout::of(format) {
        Layout::Float(element) => {
            for (out, elements) in out.iter_mut().zip(group.chunks_exact(element * GROUP_ROWS)) {
                let raw = &elements[row * element..][..element];
                *out = match format {
                    Format::F32 => f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
                    Format::F16 => f16_to_f32(u16::from_le_bytes([raw[0], raw[1]])),
                    _ => bf16_to_f32(u16::from_le_bytes([raw[0], raw[1]])),
                };
            }
        }
        Layout::Quant { low, high, scales } => {
            let line_bytes = 64 * (low + high);
            let mut block = Block::new();
            let units = group.chunks(scales.bytes() + scales.blocks() * line_bytes);
            for (out, unit) in out.chunks_mut(32 * scales.blocks()).zip(units) {
                let (scale_bytes, lines) = unit.split_at(scales.bytes());
                let mut lines = lines.chunks_exact(line_bytes);
                for (index, out) in out.chunks_exact_mut(format.block_elements()).enumerate() {
                    read_scales(&mut block, scales, index, row, scale_bytes);
                    let quants = block.quants[..format.block_elements()].chunks_exact_mut(32);
                    for (quants, lines) in quants.zip(&mut lines) {
                        read_quants(quants, low, high, row, lines);
                    }
                    block.values(format, out);
                }
            }
        }
    }
    Ok(())
}

/// Reads the scales of the unit's raw block `index`.
fn read_scales(block: &mut Block, kind: ScaleKind, index: usize, row: usize, unit: &[u8]) {
    let half = |at: usize| u16::from_le_bytes([unit[2 * at], unit[2 * at + 1]]);
    block.d = half(GROUP_ROWS * index + row);
    if kind.has_min() {
        block.m = half(GROUP_ROWS + row);
    }
    if !kind.has_bytes() {
        return;
    }
    for (index, pair) in unit[kind.head_bytes()..].chunks_exact(2 * GROUP_ROWS).take(8).enumerate() {
        let (a, b) = (pair[row], pair[GROUP_ROWS + row]);
        let (first, second) = (2 * index, 2 * index + 1);
        match kind {
            ScaleKind::Half | ScaleKind::HalfMin => {}
            ScaleKind::Bytes32Min => (block.scales[index], block.mins[index]) = (a as i8, b),
            ScaleKind::Bytes16 => (block.scales[first], block.scales[second]) = (a as i8, b as i8),
            ScaleKind::Nibbles16Min => {
                (block.scales[first], block.mins[first]) = ((a & 15) as i8, a >> 4);
                (block.scales[second], block.mins[second]) = ((b & 15) as i8, b >> 4);
            }
        }
    }
}

fn read_quants(quants: &mut [u8], low: usize, high: usize, row: usize, lines: &[u8]) {
    let word = |line: usize, byte: usize| lines[64 * line + 4 * row + byte];
    for (index, quant) in quants.iter_mut().enumerate() {
        let (k, byte) = (index / 4, index % 4);
        let place = low_place(low, high, k);
        *quant = word(place.line, byte) >> place.shift & (0xff >> (8 - low));
        if high > 0 {
            let place = high_place(low, high, k);
            *quant |= (word(place.line, byte) >> place.shift & ((1 << high) - 1)) << low;
        }
    }
}
