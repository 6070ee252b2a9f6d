//! Sixteen f32 as one value, on each level.
//!
//! The attention kernel is written once over [`Lanes`]. Its operations are those of IEEE 754 lane by lane, so all levels
//! give the same bits. Methods are `inline(always)`: they become part of the function that enables the features.

#![allow(clippy::needless_range_loop, reason = "one index goes through several arrays of registers")]

use crate::half::{bf16_to_f32, f16_to_f32, f32_to_f16};

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
    /// Sixteen bfloat16.
    unsafe fn load_brain(at: *const u16) -> Self;
    /// Sixteen signed bytes.
    unsafe fn load_byte(at: *const u8) -> Self;
    /// Sixteen E4M3 numbers, times 2^-8: their bits are those of an f16 with another bias.
    unsafe fn load_e4m3(at: *const u8) -> Self;
    /// The low (0) or high (1) halves of sixteen bytes, less 8.
    unsafe fn load_nibble<const HALF: usize>(at: *const u8) -> Self;
    /// The low (0) or high (1) halves of sixteen bytes as e2m1, times 2.
    unsafe fn load_e2m1<const HALF: usize>(at: *const u8) -> Self;
    /// The lower (0) or upper (1) bytes of sixteen units as ue4m3, times 2^-8.
    unsafe fn load_ue4m3<const HALF: usize>(at: *const u16) -> Self;
    /// Sixteen f32 whose lower and upper halves lie apart.
    unsafe fn load_halves(lower: *const u16, upper: *const u16) -> Self;
    unsafe fn splat_at(at: *const f32) -> Self;
    /// One f16, sixteen times.
    unsafe fn splat_half(at: *const u16) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// Stores as f16, rounded to nearest even.
    unsafe fn store_half(self, at: *mut u16);
    /// Calls for the line at `at`, which need not be valid.
    unsafe fn prefetch(_at: *const u8) {}
    unsafe fn mul(self, by: Self) -> Self;
    /// `self * by + to`, rounded once.
    unsafe fn fma(self, by: Self, to: Self) -> Self;
}

/// Twice what the bits of e2m1 are: all of them are whole then.
const TWICE_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

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
    unsafe fn load_brain(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Portable(unsafe { at.cast::<[u16; 16]>().read_unaligned() }.map(bf16_to_f32))
    }

    #[inline(always)]
    unsafe fn load_byte(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Portable(unsafe { at.cast::<[i8; 16]>().read() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn load_e4m3(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { at.cast::<[u8; 16]>().read() };
        Portable(bytes.map(|byte| f16_to_f32(u16::from(byte & 0x80) << 8 | u16::from(byte & 0x7f) << 7)))
    }

    #[inline(always)]
    unsafe fn load_nibble<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { at.cast::<[u8; 16]>().read() };
        Portable(bytes.map(|byte| f32::from((byte >> (4 * HALF) & 15) as i8 - 8)))
    }

    #[inline(always)]
    unsafe fn load_e2m1<const HALF: usize>(at: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { at.cast::<[u8; 16]>().read() };
        Portable(bytes.map(|byte| f32::from(TWICE_E2M1[usize::from(byte >> (4 * HALF) & 15)])))
    }

    #[inline(always)]
    unsafe fn load_ue4m3<const HALF: usize>(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        let units = unsafe { at.cast::<[u16; 16]>().read_unaligned() };
        Portable(units.map(|unit| f16_to_f32((unit >> (8 * HALF) & 0x7f) << 7)))
    }

    #[inline(always)]
    unsafe fn load_halves(lower: *const u16, upper: *const u16) -> Self {
        // SAFETY: the caller's promise.
        let (lower, upper) =
            unsafe { (lower.cast::<[u16; 16]>().read_unaligned(), upper.cast::<[u16; 16]>().read_unaligned()) };
        Portable(std::array::from_fn(|lane| f32::from_bits(u32::from(upper[lane]) << 16 | u32::from(lower[lane]))))
    }

    #[inline(always)]
    unsafe fn splat_at(at: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Portable([unsafe { *at }; 16])
    }

    #[inline(always)]
    unsafe fn splat_half(at: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Portable([f16_to_f32(unsafe { at.read_unaligned() }); 16])
    }

    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        let mut product = self;
        for lane in 0..16 {
            product.0[lane] *= by.0[lane];
        }
        product
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
mod x86;
