//! Sixteen numbers in vector registers of x86-64.

use std::arch::x86_64::*;

use super::Lanes;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx512(__m512);

impl Lanes for Avx512 {
    const QUERIES: usize = 6;
    const RUNS: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Avx512(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn load_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) })
    }

    #[inline(always)]
    unsafe fn load_brain(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn load_byte(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) })
    }

    #[inline(always)]
    unsafe fn load_e4m3(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_cvtph_ps(half_of_e4m3(_mm_loadu_si128(at.cast()))) })
    }

    #[inline(always)]
    unsafe fn load_nibble<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(nibbles::<HALF>(_mm_loadu_si128(at.cast()))))) }
    }

    #[inline(always)]
    unsafe fn load_e2m1<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(twice_e2m1::<HALF>(_mm_loadu_si128(at.cast()))))) }
    }

    #[inline(always)]
    unsafe fn load_ue4m3<const HALF: usize>(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_cvtph_ps(half_of_ue4m3::<HALF>(_mm256_loadu_si256(at.cast()))) })
    }

    #[inline(always)]
    unsafe fn load_halves(lower: *const u16, upper: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let lower = _mm512_cvtepu16_epi32(_mm256_loadu_si256(lower.cast()));
            let upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256(upper.cast()));
            Avx512(_mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32::<16>(upper), lower)))
        }
    }

    #[inline(always)]
    unsafe fn splat_at(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_set1_ps(*at) })
    }

    #[inline(always)]
    unsafe fn splat_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(at.read_unaligned() as i16)) })
    }

    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_mul_ps(self.0, by.0) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }

    #[inline(always)]
    unsafe fn store_half(self, at: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        // SAFETY: the caller's promise.
        Avx512(unsafe { _mm512_fmadd_ps(self.0, by.0, to.0) })
    }
}

/// E4M3 bits where an f16 has them: sign on top, exponent and mantissa below it.
///
/// # Safety
///
/// The processor has AVX2.
#[inline(always)]
unsafe fn half_of_e4m3(bytes: __m128i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let top = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(bytes));
        let rest = _mm256_srli_epi16::<1>(_mm256_and_si256(top, _mm256_set1_epi16(0x7f00)));
        _mm256_or_si256(_mm256_and_si256(top, _mm256_set1_epi16(i16::MIN)), rest)
    }
}

/// The low (0) or high (1) halves of bytes, less 8.
///
/// # Safety
///
/// The processor has AVX2.
#[inline(always)]
unsafe fn nibbles<const HALF: usize>(bytes: __m128i) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let shifted = if HALF == 0 { bytes } else { _mm_srli_epi16::<4>(bytes) };
        _mm_sub_epi8(_mm_and_si128(shifted, _mm_set1_epi8(15)), _mm_set1_epi8(8))
    }
}

/// The low (0) or high (1) halves of bytes as e2m1, times 2.
///
/// # Safety
///
/// The processor has AVX2.
#[inline(always)]
unsafe fn twice_e2m1<const HALF: usize>(bytes: __m128i) -> __m128i {
    // SAFETY: the caller's promise; the table has sixteen bytes.
    unsafe {
        let shifted = if HALF == 0 { bytes } else { _mm_srli_epi16::<4>(bytes) };
        let table = _mm_loadu_si128(super::TWICE_E2M1.as_ptr().cast());
        _mm_shuffle_epi8(table, _mm_and_si128(shifted, _mm_set1_epi8(15)))
    }
}

/// The lower (0) or upper (1) bytes of units, ue4m3, where an f16 has its exponent and mantissa.
///
/// # Safety
///
/// The processor has AVX2.
#[inline(always)]
unsafe fn half_of_ue4m3<const HALF: usize>(units: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let top = if HALF == 0 { _mm256_slli_epi16::<8>(units) } else { units };
        _mm256_srli_epi16::<1>(_mm256_and_si256(top, _mm256_set1_epi16(0x7f00)))
    }
}

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx2([__m256; 2]);

impl Avx2 {
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn of_bytes(bytes: __m128i) -> Avx2 {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
            Avx2([_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)])
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2 and F16C.
    #[inline(always)]
    unsafe fn of_halves(halves: __m256i) -> Avx2 {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
            Avx2([_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)])
        }
    }
}

impl Lanes for Avx2 {
    const QUERIES: usize = 3;
    const RUNS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Avx2([unsafe { _mm256_setzero_ps() }; 2])
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Avx2(unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] })
    }

    #[inline(always)]
    unsafe fn load_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(8).cast()));
            Avx2([_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)])
        }
    }

    #[inline(always)]
    unsafe fn load_brain(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(8).cast()));
            Avx2([low, high].map(|half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)))))
        }
    }

    #[inline(always)]
    unsafe fn load_byte(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2::of_bytes(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_e4m3(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2::of_halves(half_of_e4m3(_mm_loadu_si128(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_nibble<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2::of_bytes(nibbles::<HALF>(_mm_loadu_si128(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_e2m1<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2::of_bytes(twice_e2m1::<HALF>(_mm_loadu_si128(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_ue4m3<const HALF: usize>(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2::of_halves(half_of_ue4m3::<HALF>(_mm256_loadu_si256(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_halves(lower: *const u16, upper: *const u16) -> Self {
        // SAFETY: the caller's promise, which holds for eight of them and the eight behind.
        unsafe {
            Avx2([0, 8].map(|first| {
                let lower = _mm256_cvtepu16_epi32(_mm_loadu_si128(lower.add(first).cast()));
                let upper = _mm256_cvtepu16_epi32(_mm_loadu_si128(upper.add(first).cast()));
                _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32::<16>(upper), lower))
            }))
        }
    }

    #[inline(always)]
    unsafe fn splat_at(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Avx2([unsafe { _mm256_set1_ps(*at) }; 2])
    }

    #[inline(always)]
    unsafe fn splat_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Avx2([unsafe { _mm256_cvtph_ps(_mm_set1_epi16(at.read_unaligned() as i16)) }; 2])
    }

    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2([_mm256_mul_ps(self.0[0], by.0[0]), _mm256_mul_ps(self.0[1], by.0[1])]) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(at, self.0[0]);
            _mm256_storeu_ps(at.add(8), self.0[1]);
        }
    }

    #[inline(always)]
    unsafe fn store_half(self, at: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0[0]));
            _mm_storeu_si128(at.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0[1]));
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_fmadd_ps(self.0[0], by.0[0], to.0[0]);
            let high = _mm256_fmadd_ps(self.0[1], by.0[1], to.0[1]);
            Avx2([low, high])
        }
    }
}
