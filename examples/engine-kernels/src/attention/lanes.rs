//! Sixteen f32 as one value, on each level.
//!
//! The attention kernel is written once over [`Lanes`]. Its operations are those of IEEE 754 lane by lane, so all levels
//! give the same bits. Methods are `inline(always)`: they become part of the function that enables the features.

#![allow(clippy::needless_range_loop, reason = "one index goes through several arrays of registers")]

use crate::half::{f16_to_f32, f32_to_f16};

/// Sixteen f32.
///
/// # Safety
///
/// All methods: the processor has the implementation's features, and addresses passed are valid for sixteen elements
/// (one, for `splat_at`).
pub(super) trait Lanes: Copy {
    /// Lanes of queries that the kernel handles together: as many accumulators as registers allow.
    const QUERIES: usize;
    /// Runs of 16 tokens that the kernel handles together.
    const RUNS: usize;

    unsafe fn zero() -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn load_half(at: *const u16) -> Self;
    unsafe fn splat_at(at: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// Stores as f16, rounded to nearest even.
    unsafe fn store_half(self, at: *mut u16);
    /// Calls for the line at `at`, which need not be valid.
    unsafe fn prefetch(_at: *const u16) {}
    /// `self * by + to`, rounded once.
    unsafe fn fma(self, by: Self, to: Self) -> Self;
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 16]);

impl Lanes for Portable {
    const QUERIES: usize = 2;
    const RUNS: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Portable([0.0; 16])
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Portable(unsafe { at.cast::<[f32; 16]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Portable(unsafe { at.cast::<[u16; 16]>().read_unaligned() }.map(f16_to_f32))
    }

    #[inline(always)]
    unsafe fn splat_at(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Portable([unsafe { *at }; 16])
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[f32; 16]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_half(self, at: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[u16; 16]>().write_unaligned(self.0.map(f32_to_f16)) }
    }

    #[inline(always)]
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        let mut sum = to;
        for lane in 0..16 {
            sum.0[lane] = self.0[lane].mul_add(by.0[lane], sum.0[lane]);
        }
        sum
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
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
        unsafe fn splat_at(at: *const f32) -> Self {
            // SAFETY: the caller's promise.
            Avx512(unsafe { _mm512_set1_ps(*at) })
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
        unsafe fn prefetch(at: *const u16) {
            // SAFETY: any address may be prefetched.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn fma(self, by: Self, to: Self) -> Self {
            // SAFETY: the caller's promise.
            Avx512(unsafe { _mm512_fmadd_ps(self.0, by.0, to.0) })
        }
    }

    /// Two 256-bit registers.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2([__m256; 2]);

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
        unsafe fn splat_at(at: *const f32) -> Self {
            // SAFETY: the caller's promise.
            Avx2([unsafe { _mm256_set1_ps(*at) }; 2])
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
        unsafe fn prefetch(at: *const u16) {
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
}
