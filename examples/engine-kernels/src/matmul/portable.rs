//! Tiles in plain Rust: the reference for the other levels, and what runs on other processors.

use super::spec::{Spec, for_format};
use super::tile::{Tile, TileFn, TileOut};
use crate::format::Format;
use crate::half::{bf16_to_f32, f16_to_f32};
use crate::packed::{GROUP_ROWS, ScaleKind, high_place, low_place};
use crate::quant::{NEGATED_SUMS_AT, RECORD_BYTES, SCALE_AT, SCALED_SUM_AT};

pub(super) fn tiles(format: Format) -> &'static [TileFn] {
    for_format!(format, table, floats)
}

fn floats(format: Format) -> &'static [TileFn] {
    match format {
        Format::F32 => &[float::<0>],
        Format::F16 => &[float::<1>],
        _ => &[float::<2>],
    }
}

fn table<S: Spec>() -> &'static [TileFn] {
    &[tile::<S>]
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(i32_at(bytes, at) as u32)
}

fn half_at(bytes: &[u8], index: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
}

/// Scale and minimum of one part of a block for one row.
fn factors<S: Spec>(scales: &[u8], block: usize, part: usize, row: usize) -> (f32, f32) {
    let d = half_at(scales, if S::SCALES.has_bytes() { row } else { GROUP_ROWS * block + row });
    let m = if S::SCALES.has_min() { half_at(scales, GROUP_ROWS + row) } else { 0.0 };
    let byte = |lot: usize| scales[S::SCALES.head_bytes() + 32 * block + GROUP_ROWS * lot + row];
    match S::SCALES {
        ScaleKind::Half | ScaleKind::HalfMin => (d, m),
        ScaleKind::Bytes32Min => (d * f32::from(byte(0)), m * f32::from(byte(1))),
        ScaleKind::Bytes16 => (d * f32::from(byte(part) as i8), m),
        ScaleKind::Nibbles16Min => (d * f32::from(byte(part) & 15), m * f32::from(byte(part) >> 4)),
    }
}

/// Quad `k` of a block for one row, as four unsigned bytes.
fn quad<S: Spec>(lines: &[u8], k: usize, row: usize) -> u32 {
    let word = |line: usize| i32_at(lines, 64 * line + 4 * row) as u32;
    let bytes = |value: u32| value * 0x0101_0101;
    let place = low_place(S::LOW, S::HIGH, k);
    let low = word(place.line) >> place.shift & bytes(0xff >> (8 - S::LOW));
    if S::HIGH == 0 {
        return low;
    }
    let place = high_place(S::LOW, S::HIGH, k);
    low | (word(place.line) >> place.shift & bytes((1 << S::HIGH) - 1)) << S::LOW
}

fn tile<S: Spec>(tile: &Tile<'_>, out: &mut TileOut) {
    let mut acc = [0f32; GROUP_ROWS];
    let units = tile.weights.chunks(S::UNIT_BYTES);
    for (x, unit) in tile.x.chunks(RECORD_BYTES * S::BLOCKS).zip(units) {
        let (scales, lines) = unit.split_at(S::SCALES.bytes());
        let blocks = x.chunks_exact(RECORD_BYTES).zip(lines.chunks_exact(S::LINES_BYTES));
        for (block, (x, lines)) in blocks.enumerate() {
            for part in 0..S::PARTS {
                tile_part::<S>(scales, lines, x, block, part, &mut acc);
            }
        }
    }
    out.0[0] = acc;
}

fn tile_part<S: Spec>(scales: &[u8], lines: &[u8], x: &[u8], block: usize, part: usize, acc: &mut [f32; GROUP_ROWS]) {
    let negated = [i32_at(x, NEGATED_SUMS_AT), i32_at(x, NEGATED_SUMS_AT + 4)];
    let scale = f32_at(x, SCALE_AT);
    let (negated, scaled_sum) = match S::PARTS {
        1 => (negated[0].wrapping_add(negated[1]), f32_at(x, SCALED_SUM_AT)),
        _ => (negated[part], (0.0 - negated[part] as f32) * scale),
    };
    for (row, acc) in acc.iter_mut().enumerate() {
        let mut dot = if S::CENTRED { negated.wrapping_shl(S::BIAS_BITS) } else { 0 };
        for step in 0..8 / S::PARTS {
            let k = part * 4 + step;
            let weights = quad::<S>(lines, k, row).to_le_bytes();
            for (weight, x) in weights.iter().zip(&x[4 * k..4 * k + 4]) {
                dot = dot.wrapping_add(i32::from(*weight) * i32::from(*x as i8));
            }
        }
        let (weight_scale, min) = factors::<S>(scales, block, part, row);
        *acc = (dot as f32).mul_add(weight_scale * scale, *acc);
        if S::SCALES.has_min() {
            let min = if S::ADDS_MIN { min } else { -min };
            *acc = min.mul_add(scaled_sum, *acc);
        }
    }
}

fn float<const KIND: u8>(tile: &Tile<'_>, out: &mut TileOut) {
    let element = if KIND == 0 { 4 } else { 2 };
    let mut acc = [0f32; GROUP_ROWS];
    for (x, weights) in tile.x.chunks_exact(4).zip(tile.weights.chunks_exact(element * GROUP_ROWS)) {
        let x = f32_at(x, 0);
        for (acc, raw) in acc.iter_mut().zip(weights.chunks_exact(element)) {
            let weight = match KIND {
                0 => f32_at(raw, 0),
                1 => half_at(raw, 0),
                _ => bf16_to_f32(u16::from_le_bytes([raw[0], raw[1]])),
            };
            *acc = weight.mul_add(x, *acc);
        }
    }
    out.0[0] = acc;
}
