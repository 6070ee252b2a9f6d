//! Tiles for AVX2: as for AVX-512, with the group's 16 rows in two halves of 8, and byte products summed by pairs.
//!
//! Pairs are summed in 16 bits, which is exact: quants below 64 times bytes up to 127 leave room for as many quads as
//! [`quads_in_16_bits`] says, and 8-bit quants are multiplied as magnitudes of at most 128 against signed bytes.

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
    &[tile::<S, 1>, tile::<S, 2>, tile::<S, 3>, tile::<S, 4>]
}

/// Quads whose pair sums fit 16 bits together.
const fn quads_in_16_bits(bits: usize) -> usize {
    match bits {
        8 => 1,
        6 => 2,
        _ => 4,
    }
}

/// Scale and minimum of the parts of a block of 32 columns.
#[derive(Clone, Copy)]
struct Factors {
    scale: [__m256; 2],
    min: [__m256; 2],
}

/// Eight f16 at `at`.
///
/// # Safety
///
/// 16 bytes at `at` are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Factors of eight rows, from row `first`, of block `block` of the unit at `unit`; `d` and `m` are the head of a K format's.
///
/// # Safety
///
/// The unit's scales are readable at `unit`, `block` is one of its blocks, and `first` is 0 or 8.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn factors<S: Spec>(d: __m256, m: __m256, unit: *const u8, block: usize, first: usize) -> Factors {
    if !S::SCALES.has_bytes() {
        // SAFETY: a unit without byte scales has sixteen f16 for each block, or is one block with minimums.
        unsafe {
            let scale = halves(unit.add(32 * block + 2 * first));
            let min = if S::SCALES.has_min() { halves(unit.add(32 + 2 * first)) } else { m };
            return Factors { scale: [scale; 2], min: [min; 2] };
        }
    }
    // SAFETY: each block has two lots of 16 bytes after the head.
    let (a, b) = unsafe {
        let pair = unit.add(S::SCALES.head_bytes() + 32 * block + first);
        (_mm_loadl_epi64(pair.cast()), _mm_loadl_epi64(pair.add(16).cast()))
    };
    let unsigned = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    let signed = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    match S::SCALES {
        ScaleKind::Bytes32Min => {
            Factors { scale: [_mm256_mul_ps(d, unsigned(a)); 2], min: [_mm256_mul_ps(m, unsigned(b)); 2] }
        }
        ScaleKind::Bytes16 => {
            Factors { scale: [_mm256_mul_ps(d, signed(a)), _mm256_mul_ps(d, signed(b))], min: [m; 2] }
        }
        _ => {
            let low = |bytes| _mm256_mul_ps(d, unsigned(_mm_and_si128(bytes, _mm_set1_epi8(15))));
            let high = |bytes| {
                let nibbles = _mm_and_si128(_mm_srli_epi16::<4>(bytes), _mm_set1_epi8(15));
                _mm256_mul_ps(m, unsigned(nibbles))
            };
            Factors { scale: [low(a), low(b)], min: [high(a), high(b)] }
        }
    }
}

/// Quad `k` of a block of 32 columns for eight rows, unsigned bytes.
///
/// # Safety
///
/// The upper or lower halves of the block's lines are readable from `lines`, and `k < 8`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn quad<S: Spec>(lines: *const u8, k: usize) -> __m256i {
    let bytes = |value: u8| _mm256_set1_epi8(value as i8);
    // SAFETY: the caller's promise; the places of quads lie within the block's lines.
    let line = |index: usize| unsafe { _mm256_loadu_si256(lines.add(64 * index).cast()) };
    let right = |v: __m256i, bits: usize| _mm256_srlv_epi32(v, _mm256_set1_epi32(bits as i32));
    let left = |v: __m256i, bits: usize| _mm256_sllv_epi32(v, _mm256_set1_epi32(bits as i32));
    let place = low_place(S::LOW, S::HIGH, k);
    let low = match S::LOW {
        8 => line(place.line),
        bits => _mm256_and_si256(right(line(place.line), place.shift), bytes((1 << bits) - 1)),
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
    _mm256_or_si256(low, _mm256_and_si256(moved, mask))
}

/// Pair sums of products of unsigned quants and signed bytes; 8-bit quants lose their bias of 128 on the way.
#[inline]
#[target_feature(enable = "avx2")]
fn products<S: Spec>(weights: __m256i, x: __m256i) -> __m256i {
    if S::LOW == 8 {
        let weights = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
        return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
    }
    _mm256_maddubs_epi16(weights, x)
}

/// The 32-bit word at `at` in every lane.
///
/// # Safety
///
/// 4 bytes at `at` are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn word(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

#[target_feature(enable = "avx2,fma,f16c")]
fn tile<S: Spec, const M: usize>(tile: &Tile<'_>, out: &mut TileOut) {
    let blocks = tile.cols / 32;
    tile.check(M, S::read_bytes(blocks), blocks * RECORD_BYTES);
    // SAFETY: `check` made sure that the group holds all blocks and the scales of their units, and that each of the `M`
    // activation rows, `x_stride` apart, holds a record for each block.
    unsafe {
        half_tile::<S, M>(tile, 0, out);
        half_tile::<S, M>(tile, 8, out);
    }
}

/// Rows `first` (0 or 8) to `first + 7` of the group.
///
/// # Safety
///
/// The group holds all blocks and the scales of their units; each of the `M` activation rows, `x_stride` apart, holds a
/// record for each block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn half_tile<S: Spec, const M: usize>(tile: &Tile<'_>, first: usize, out: &mut TileOut) {
    let mut acc = [_mm256_setzero_ps(); M];
    // A bias is subtracted through the sums of the activations, except where `products` has done it.
    let by_sums = S::CENTRED && S::LOW != 8;
    let run = quads_in_16_bits(S::LOW + S::HIGH);
    let (mut unit, mut x) = (tile.weights.as_ptr(), tile.x.as_ptr());
    let mut left = tile.cols / 32;
    while left > 0 {
        // A constant for K formats, whose rows are whole units.
        let blocks = if S::SCALES.has_bytes() { S::BLOCKS } else { left.min(S::BLOCKS) };
        left -= blocks;
        // SAFETY: the caller's promise; `unit`, `lines` and `x` advance by one of each at a time, and only reads within the
        // current one follow.
        unsafe {
            let d = halves(unit.add(2 * first));
            let m = if S::SCALES.has_min() { halves(unit.add(32 + 2 * first)) } else { _mm256_setzero_ps() };
            let mut lines = unit.add(S::SCALES.bytes() + 4 * first);
            for block in 0..blocks {
                let factors = factors::<S>(d, m, unit, block, first);
                let row = |index: usize| x.add(index * tile.x_stride);
                for part in 0..S::PARTS {
                    let mut dot = [_mm256_setzero_si256(); M];
                    if by_sums {
                        for index in 0..M {
                            let sums = row(index).add(NEGATED_SUMS_AT);
                            let sum = match S::PARTS {
                                1 => _mm256_add_epi32(word(sums), word(sums.add(4))),
                                _ => word(sums.add(4 * part)),
                            };
                            dot[index] = _mm256_sllv_epi32(sum, _mm256_set1_epi32(S::BIAS_BITS as i32));
                        }
                    }
                    for start in (0..8 / S::PARTS).step_by(run) {
                        let mut pairs = [_mm256_setzero_si256(); M];
                        for step in 0..run {
                            let k = part * 4 + start + step;
                            let weights = quad::<S>(lines, k);
                            for index in 0..M {
                                let product = products::<S>(weights, word(row(index).add(4 * k)));
                                pairs[index] =
                                    if step == 0 { product } else { _mm256_add_epi16(pairs[index], product) };
                            }
                        }
                        for index in 0..M {
                            let sums = _mm256_madd_epi16(pairs[index], _mm256_set1_epi16(1));
                            dot[index] = _mm256_add_epi32(dot[index], sums);
                        }
                    }
                    for index in 0..M {
                        let row = row(index);
                        let scale = _mm256_castsi256_ps(word(row.add(SCALE_AT)));
                        let both = _mm256_mul_ps(factors.scale[part], scale);
                        acc[index] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[index]), both, acc[index]);
                        if S::SCALES.has_min() {
                            let sum = if S::PARTS == 1 {
                                _mm256_castsi256_ps(word(row.add(SCALED_SUM_AT)))
                            } else {
                                let negated = _mm256_cvtepi32_ps(word(row.add(NEGATED_SUMS_AT + 4 * part)));
                                _mm256_mul_ps(_mm256_sub_ps(_mm256_setzero_ps(), negated), scale)
                            };
                            acc[index] = if S::ADDS_MIN {
                                _mm256_fmadd_ps(factors.min[part], sum, acc[index])
                            } else {
                                _mm256_fnmadd_ps(factors.min[part], sum, acc[index])
                            };
                        }
                    }
                }
                lines = lines.add(S::LINES_BYTES);
                x = x.add(RECORD_BYTES);
            }
            unit = lines.sub(4 * first);
        }
    }
    for index in 0..M {
        // SAFETY: a row of the output is sixteen f32, and `first` is 0 or 8.
        unsafe { _mm256_storeu_ps(out.0[index].as_mut_ptr().add(first), acc[index]) };
    }
}

fn floats(format: Format) -> &'static [TileFn] {
    match format {
        Format::F32 => &[float::<F32, 1>, float::<F32, 2>, float::<F32, 3>, float::<F32, 4>],
        Format::F16 => &[float::<F16, 1>, float::<F16, 2>, float::<F16, 3>, float::<F16, 4>],
        _ => &[float::<BF16, 1>, float::<BF16, 2>, float::<BF16, 3>, float::<BF16, 4>],
    }
}

const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

#[target_feature(enable = "avx2,fma,f16c")]
fn float<const KIND: u8, const M: usize>(tile: &Tile<'_>, out: &mut TileOut) {
    let element = if KIND == F32 { 4 } else { 2 };
    tile.check(M, tile.cols * element * 16, tile.cols * 4);

    let mut acc = [[_mm256_setzero_ps(); 2]; M];
    for col in 0..tile.cols {
        // SAFETY: `check` made sure that the elements hold `cols` columns of sixteen and that each of the `M` activation
        // rows, `x_stride` apart, holds `cols` f32.
        unsafe {
            let at = tile.weights.as_ptr().add(col * element * 16);
            let eight = |half: usize| {
                let at = at.add(8 * element * half);
                match KIND {
                    F32 => _mm256_loadu_ps(at.cast()),
                    F16 => halves(at),
                    _ => {
                        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                    }
                }
            };
            let weights = [eight(0), eight(1)];
            for index in 0..M {
                let x = _mm256_castsi256_ps(word(tile.x.as_ptr().add(index * tile.x_stride + 4 * col)));
                for half in 0..2 {
                    acc[index][half] = _mm256_fmadd_ps(weights[half], x, acc[index][half]);
                }
            }
        }
    }
    for index in 0..M {
        for half in 0..2 {
            // SAFETY: a row of the output is sixteen f32.
            unsafe { _mm256_storeu_ps(out.0[index].as_mut_ptr().add(8 * half), acc[index][half]) };
        }
    }
}
