//! Quantisation with vector instructions; the same bytes as the plain one.

use std::arch::x86_64::*;

use super::{RECORD_BYTES, RECORD_COLS, finish, poison, scales};

/// The largest of eight unsigned numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_of(lanes: __m256i) -> u32 {
    let four = _mm_max_epu32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let two = _mm_max_epu32(four, _mm_unpackhi_epi64(four, four));
    let one = _mm_max_epu32(two, _mm_shuffle_epi32::<1>(two));
    _mm_cvtsi128_si32(one) as u32
}

/// The sums of the lower and the upper 16 of 32 signed bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_of(bytes: __m256i) -> [i32; 2] {
    // Made unsigned, the sums of eights are one instruction; each half is then 16 x 128 too large.
    let unsigned = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
    let eights = _mm256_sad_epu8(unsigned, _mm256_setzero_si256());
    let halves = _mm256_add_epi64(eights, _mm256_unpackhi_epi64(eights, eights));
    let (low, high) = (_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    [_mm_cvtsi128_si32(low) - 16 * 128, _mm_cvtsi128_si32(high) - 16 * 128]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn quantize_avx512(blocks: &[[f32; RECORD_COLS]], records: &mut [[u8; RECORD_BYTES]]) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    for (block, record) in blocks.iter().zip(records) {
        // SAFETY: a block is two registers of f32.
        let (a, b) = unsafe { (_mm512_loadu_ps(block.as_ptr()), _mm512_loadu_ps(block.as_ptr().add(16))) };
        let (bits_a, bits_b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
        let lanes = _mm512_max_epu32(_mm512_and_si512(bits_a, magnitude), _mm512_and_si512(bits_b, magnitude));
        let eight = _mm256_max_epu32(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
        let Some((scale, inverse)) = scales(largest_of(eight)) else {
            poison(record);
            continue;
        };
        let inverse = _mm512_set1_ps(inverse);
        let low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
        let high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
        let bytes = _mm256_set_m128i(high, low);
        // SAFETY: a record begins with 32 bytes.
        unsafe { _mm256_storeu_si256(record.as_mut_ptr().cast(), bytes) };
        finish(record, scale, sums_of(bytes));
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantize_avx2(blocks: &[[f32; RECORD_COLS]], records: &mut [[u8; RECORD_BYTES]]) {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    for (block, record) in blocks.iter().zip(records) {
        let mut x = [_mm256_setzero_ps(); 4];
        let mut lanes = _mm256_setzero_si256();
        for (index, x) in x.iter_mut().enumerate() {
            // SAFETY: a block is four registers of f32.
            *x = unsafe { _mm256_loadu_ps(block.as_ptr().add(8 * index)) };
            lanes = _mm256_max_epu32(lanes, _mm256_and_si256(_mm256_castps_si256(*x), magnitude));
        }
        let Some((scale, inverse)) = scales(largest_of(lanes)) else {
            poison(record);
            continue;
        };
        let quants = x.map(|x| _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(inverse))));
        // Packing interleaves the registers' halves, in fours; the permutation puts them in order.
        let (low, high) = (_mm256_packs_epi32(quants[0], quants[1]), _mm256_packs_epi32(quants[2], quants[3]));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        // SAFETY: a record begins with 32 bytes.
        unsafe { _mm256_storeu_si256(record.as_mut_ptr().cast(), bytes) };
        finish(record, scale, sums_of(bytes));
    }
}
