//! Tiles for AVX-512 with VNNI: a 512-bit register holds a quad of each of the group's 16 rows, and the same quad of an
//! activation row is broadcast against it.

#![allow(clippy::needless_range_loop, reason = "one index goes through several arrays of registers")]

use std::arch::x86_64::*;

use super::spec::{Spec, for_format};
use super::tile::{Tile, TileFn, TileOut};
use crate::format::Format;
use crate::packed::{ScaleKind, high_place, low_place};
use crate::quant::{NEGATED_SUMS_AT, RECORD_BYTES, SCALE_AT, SCALED_SUM_AT};

pub(super) fn tiles(format: Format) -> &'static [TileFn] {
    for_format!(format, table, floats)
}

fn table<S: Spec>() -> &'static [TileFn] {
    &[tile::<S, 1>, tile::<S, 2>, tile::<S, 3>, tile::<S, 4>, tile::<S, 5>, tile::<S, 6>, tile::<S, 7>, tile::<S, 8>]
}

/// Scale and minimum of the parts of a block of 32 columns.
#[derive(Clone, Copy)]
struct Factors {
    scale: [__m512; 2],
    min: [__m512; 2],
}

/// Sixteen f16 at `at`.
///
/// # Safety
///
/// 32 bytes at `at` are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

/// Factors of block `block` of the unit at `unit`; `d` and `m` are the head of a K format's.
///
/// # Safety
///
/// The unit's scales are readable at `unit`, and `block` is one of its blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn factors<S: Spec>(d: __m512, m: __m512, unit: *const u8, block: usize) -> Factors {
    if !S::SCALES.has_bytes() {
        // SAFETY: a unit without byte scales has sixteen f16 for each block, or is one block with minimums.
        unsafe {
            let scale = halves(unit.add(32 * block));
            let min = if S::SCALES.has_min() { halves(unit.add(32)) } else { m };
            return Factors { scale: [scale; 2], min: [min; 2] };
        }
    }
    // SAFETY: each block has two lots of 16 bytes after the head.
    let (a, b) = unsafe {
        let pair = unit.add(S::SCALES.head_bytes() + 32 * block);
        (_mm_loadu_si128(pair.cast()), _mm_loadu_si128(pair.add(16).cast()))
    };
    let unsigned = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    let signed = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    match S::SCALES {
        ScaleKind::Bytes32Min => {
            Factors { scale: [_mm512_mul_ps(d, unsigned(a)); 2], min: [_mm512_mul_ps(m, unsigned(b)); 2] }
        }
        ScaleKind::Bytes16 => {
            Factors { scale: [_mm512_mul_ps(d, signed(a)), _mm512_mul_ps(d, signed(b))], min: [m; 2] }
        }
        _ => {
            let low = |bytes| _mm512_mul_ps(d, unsigned(_mm_and_si128(bytes, _mm_set1_epi8(15))));
            let high = |bytes| {
                let nibbles = _mm_and_si128(_mm_srli_epi16::<4>(bytes), _mm_set1_epi8(15));
                _mm512_mul_ps(m, unsigned(nibbles))
            };
            Factors { scale: [low(a), low(b)], min: [high(a), high(b)] }
        }
    }
}

/// Quad `k` of a block of 32 columns for all 16 rows, unsigned bytes.
///
/// # Safety
///
/// The block's lines are readable at `lines`, and `k < 8`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn quad<S: Spec>(lines: *const u8, k: usize) -> __m512i {
    let bytes = |value: u8| _mm512_set1_epi8(value as i8);
    // SAFETY: the caller's promise; the places of quads lie within the block's lines.
    let line = |index: usize| unsafe { _mm512_loadu_si512(lines.add(64 * index).cast()) };
    let right = |v: __m512i, bits: usize| _mm512_srlv_epi32(v, _mm512_set1_epi32(bits as i32));
    let left = |v: __m512i, bits: usize| _mm512_sllv_epi32(v, _mm512_set1_epi32(bits as i32));
    let place = low_place(S::LOW, S::HIGH, k);
    let low = match S::LOW {
        8 => line(place.line),
        bits => _mm512_and_si512(right(line(place.line), place.shift), bytes((1 << bits) - 1)),
    };
    if S::HIGH == 0 {
        return low;
    }
    let place = high_place(S::LOW, S::HIGH, k);
    let source = line(place.line);
    let moved = match place.shift.checked_sub(S::LOW) {
        Some(bits) => right(source, bits),
        None => left(source, S::LOW - place.shift),
    };
    let mask = bytes(((1u8 << S::HIGH) - 1) << S::LOW);
    _mm512_or_si512(low, _mm512_and_si512(moved, mask))
}

/// The 32-bit word at `at` in every lane.
///
/// # Safety
///
/// 4 bytes at `at` are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn word(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    _mm512_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<S: Spec, const M: usize>(tile: &Tile<'_>, out: &mut TileOut) {
    let mut left = tile.cols / 32;
    tile.check(M, S::read_bytes(left), left * RECORD_BYTES);

    let mut acc = [_mm512_setzero_ps(); M];
    let (mut unit, mut x) = (tile.weights.as_ptr(), tile.x.as_ptr());
    while left > 0 {
        // A constant for K formats, whose rows are whole units.
        let blocks = if S::SCALES.has_bytes() { S::BLOCKS } else { left.min(S::BLOCKS) };
        left -= blocks;
        // SAFETY: `check` made sure that the group holds all blocks and the scales of their units, and that each of the
        // `M` activation rows, `x_stride` apart, holds a record for each block. `unit`, `lines` and `x` advance by one of
        // each at a time, and only reads within the current one follow.
        unsafe {
            let d = halves(unit);
            let m = if S::SCALES.has_min() { halves(unit.add(32)) } else { _mm512_setzero_ps() };
            let mut lines = unit.add(S::SCALES.bytes());
            for block in 0..blocks {
                let factors = factors::<S>(d, m, unit, block);
                let row = |index: usize| x.add(index * tile.x_stride);
                for part in 0..S::PARTS {
                    let mut dot = [_mm512_setzero_si512(); M];
                    if S::CENTRED {
                        for index in 0..M {
                            let sums = row(index).add(NEGATED_SUMS_AT);
                            let sum = match S::PARTS {
                                1 => _mm512_add_epi32(word(sums), word(sums.add(4))),
                                _ => word(sums.add(4 * part)),
                            };
                            dot[index] = _mm512_sllv_epi32(sum, _mm512_set1_epi32(S::BIAS_BITS as i32));
                        }
                    }
                    for step in 0..8 / S::PARTS {
                        let k = part * 4 + step;
                        let weights = quad::<S>(lines, k);
                        for index in 0..M {
                            dot[index] = _mm512_dpbusd_epi32(dot[index], weights, word(row(index).add(4 * k)));
                        }
                    }
                    for index in 0..M {
                        let row = row(index);
                        let scale = _mm512_castsi512_ps(word(row.add(SCALE_AT)));
                        let both = _mm512_mul_ps(factors.scale[part], scale);
                        acc[index] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[index]), both, acc[index]);
                        if S::SCALES.has_min() {
                            let sum = if S::PARTS == 1 {
                                _mm512_castsi512_ps(word(row.add(SCALED_SUM_AT)))
                            } else {
                                let negated = _mm512_cvtepi32_ps(word(row.add(NEGATED_SUMS_AT + 4 * part)));
                                _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), negated), scale)
                            };
                            acc[index] = if S::ADDS_MIN {
                                _mm512_fmadd_ps(factors.min[part], sum, acc[index])
                            } else {
                                _mm512_fnmadd_ps(factors.min[part], sum, acc[index])
                            };
                        }
                    }
                }
                lines = lines.add(S::LINES_BYTES);
                x = x.add(RECORD_BYTES);
            }
            unit = lines;
        }
    }
    for index in 0..M {
        // SAFETY: a row of the output is sixteen f32.
        unsafe { _mm512_storeu_ps(out.0[index].as_mut_ptr(), acc[index]) };
    }
}

fn floats(format: Format) -> &'static [TileFn] {
    macro_rules! table {
        ($kind:expr) => {
            &[
                float::<{ $kind }, 1>,
                float::<{ $kind }, 2>,
                float::<{ $kind }, 3>,
                float::<{ $kind }, 4>,
                float::<{ $kind }, 5>,
                float::<{ $kind }, 6>,
                float::<{ $kind }, 7>,
                float::<{ $kind }, 8>,
            ]
        };
    }
    match format {
        Format::F32 => table!(F32),
        Format::F16 => table!(F16),
        _ => table!(BF16),
    }
}

const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn float<const KIND: u8, const M: usize>(tile: &Tile<'_>, out: &mut TileOut) {
    let element = if KIND == F32 { 4 } else { 2 };
    tile.check(M, tile.cols * element * 16, tile.cols * 4);

    let mut acc = [_mm512_setzero_ps(); M];
    for col in 0..tile.cols {
        // SAFETY: `check` made sure that the elements hold `cols` columns of sixteen and that each of the `M` activation
        // rows, `x_stride` apart, holds `cols` f32.
        unsafe {
            let at = tile.weights.as_ptr().add(col * element * 16);
            let weights = match KIND {
                F32 => _mm512_loadu_ps(at.cast()),
                F16 => halves(at),
                _ => {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
            };
            for index in 0..M {
                let x = word(tile.x.as_ptr().add(index * tile.x_stride + 4 * col));
                acc[index] = _mm512_fmadd_ps(weights, _mm512_castsi512_ps(x), acc[index]);
            }
        }
    }
    for index in 0..M {
        // SAFETY: a row of the output is sixteen f32.
        unsafe { _mm512_storeu_ps(out.0[index].as_mut_ptr(), acc[index]) };
    }
}
