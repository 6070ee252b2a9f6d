//! A chunk of a cache that is not f16, as f16: what the kernel reads. Element times scale, rounded once.

use std::mem::MaybeUninit;

use super::cache::KvShape;
use super::format::{GROUP, KvFormat, MAX_DIM};
use super::kernel::{CHUNK, CHUNK_RUNS, RUN, Run};
use super::lanes::Lanes;
use crate::half::ue4m3_to_f32;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Keys `[run][dim][16 positions]` and values `[position][dim]` of a chunk: a block of 16 positions for each run.
#[repr(align(64))]
pub(super) struct Unpacked {
    keys: MaybeUninit<[u16; CHUNK * MAX_DIM]>,
    values: MaybeUninit<[u16; CHUNK * MAX_DIM]>,
}

impl Unpacked {
    #[inline(always)]
    pub(super) const fn new() -> Unpacked {
        Unpacked { keys: MaybeUninit::uninit(), values: MaybeUninit::uninit() }
    }

    /// Unpacks `runs`, and calls for the lines of the `next` ones. The same runs, here.
    ///
    /// # Safety
    ///
    /// The processor has the features of `V`; the runs' pointers are valid for the shape, which was checked.
    #[inline(always)]
    pub(super) unsafe fn fill<V: Lanes>(
        &mut self,
        shape: KvShape,
        runs: &[Run],
        next: &[Run; CHUNK_RUNS],
    ) -> [Run; CHUNK_RUNS] {
        let mut unpacked = [Run::NONE; CHUNK_RUNS];
        for (index, (run, next)) in runs.iter().zip(next).enumerate() {
            let first = index * RUN * shape.head_dim;
            // SAFETY: there are as many runs as a chunk has, and a head is no larger than `MAX_DIM`.
            unsafe {
                let keys = self.keys.as_mut_ptr().cast::<u16>().add(first);
                let values = self.values.as_mut_ptr().cast::<u16>().add(first);
                match shape.format {
                    KvFormat::Fp8 => fill_run::<V, Fp8>(shape, run, next, keys, values),
                    KvFormat::Q8_0 => fill_run::<V, Q8_0>(shape, run, next, keys, values),
                    KvFormat::Nvfp4 => fill_run::<V, Nvfp4>(shape, run, next, keys, values),
                    KvFormat::Q4_0 | KvFormat::Q4_0Rotated => fill_run::<V, Q4_0>(shape, run, next, keys, values),
                    // f16 is never unpacked.
                    KvFormat::Bf16 | KvFormat::F16 => fill_run::<V, Bf16>(shape, run, next, keys, values),
                }
                unpacked[index] = Run { position: run.position, keys, values, ..Run::NONE };
            }
        }
        unpacked
    }
}

/// How sixteen elements of a format are read, exactly, without their scale.
trait Cells {
    const FORMAT: KvFormat;
    /// Elements that share a byte, one behind the other by 16.
    const HALVES: usize = 1;

    /// # Safety
    ///
    /// The processor has the features of `V`, and `at` is valid for sixteen elements.
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V;

    /// What sixteen tokens' keys of group `number` of `groups` are multiplied with, in the low and in the high halves of bytes; groups
    /// are `stride` units apart.
    ///
    /// # Safety
    ///
    /// The processor has the features of `V`, and `at` is where the run's scales are.
    #[inline(always)]
    unsafe fn key_scales<V: Lanes>(at: *const u16, (number, _groups): (usize, usize), stride: usize) -> [V; 2] {
        // SAFETY: the caller's promise.
        [unsafe { V::load_half(at.add(number * stride)) }; 2]
    }

    /// The same of one token's values.
    ///
    /// # Safety
    ///
    /// The processor has the features of `V`, and `at` is where the token's scales are.
    #[inline(always)]
    unsafe fn value_scales<V: Lanes>(at: *const u16, (number, _groups): (usize, usize)) -> [V; 2] {
        // SAFETY: the caller's promise.
        [unsafe { V::splat_half(at.add(number)) }; 2]
    }
}

struct Bf16;
struct Fp8;
struct Q8_0;
struct Nvfp4;
struct Q4_0;

impl Cells for Bf16 {
    const FORMAT: KvFormat = KvFormat::Bf16;
    #[inline(always)]
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V {
        // SAFETY: the caller's promise, here and below.
        unsafe { V::load_brain(at.cast()) }
    }
}

impl Cells for Fp8 {
    const FORMAT: KvFormat = KvFormat::Fp8;
    #[inline(always)]
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_e4m3(at) }
    }
}

impl Cells for Q8_0 {
    const FORMAT: KvFormat = KvFormat::Q8_0;
    #[inline(always)]
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_byte(at) }
    }
}

/// What the row's scale is multiplied with for it: elements are read twice as large, scales of groups by 2^8 too small.
const OF_ROWS: f32 = 128.0;

impl Cells for Nvfp4 {
    const FORMAT: KvFormat = KvFormat::Nvfp4;
    const HALVES: usize = 2;
    #[inline(always)]
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_e2m1::<HALF>(at) }
    }

    #[inline(always)]
    unsafe fn key_scales<V: Lanes>(at: *const u16, (number, groups): (usize, usize), stride: usize) -> [V; 2] {
        // SAFETY: the caller's promise; the row's scale is behind those of its groups.
        unsafe {
            let row = V::load_halves(at.add(groups * stride), at.add((groups + 1) * stride)).mul(V::splat_at(&OF_ROWS));
            let at = at.add(number * stride);
            [V::load_ue4m3::<0>(at).mul(row), V::load_ue4m3::<1>(at).mul(row)]
        }
    }

    #[inline(always)]
    unsafe fn value_scales<V: Lanes>(at: *const u16, (number, groups): (usize, usize)) -> [V; 2] {
        // SAFETY: the caller's promise; the row's scale is behind those of its groups.
        unsafe {
            let row = u32::from(*at.add(groups + 1)) << 16 | u32::from(*at.add(groups));
            let row = f32::from_bits(row) * 0.5;
            (*at.add(number)).to_le_bytes().map(|scale| V::splat_at(&(ue4m3_to_f32(scale) * row)))
        }
    }
}

impl Cells for Q4_0 {
    const FORMAT: KvFormat = KvFormat::Q4_0;
    const HALVES: usize = 2;
    #[inline(always)]
    unsafe fn load<V: Lanes, const HALF: usize>(at: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_nibble::<HALF>(at) }
    }
}

/// Dimensions that share a scale; 0 where there is none.
#[inline(always)]
fn group<C: Cells>(head_dim: usize) -> usize {
    match C::FORMAT {
        KvFormat::F16 | KvFormat::Bf16 => 0,
        KvFormat::Fp8 => head_dim,
        KvFormat::Q8_0 | KvFormat::Nvfp4 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => GROUP,
    }
}

/// # Safety
///
/// As `Unpacked::fill`; `keys` and `values` have room for a run.
#[inline(always)]
unsafe fn fill_run<V: Lanes, C: Cells>(shape: KvShape, run: &Run, next: &Run, keys: *mut u16, values: *mut u16) {
    let KvShape { head_dim: dim, block_tokens: stride, .. } = shape;
    let (bits, group) = (C::FORMAT.bits(), group::<C>(dim));
    // None where there are no scales.
    let (groups, scales) = (dim.checked_div(group).unwrap_or(0), C::FORMAT.scales(dim));
    // SAFETY: passed on; rows of keys are `stride` elements apart, rows of values `dim`, and a group of 32 four-bit elements is
    // 16 bytes.
    unsafe {
        let from = run.keys.cast::<u8>();
        for number in 0..groups.max(1) {
            let dims = if groups == 0 { dim } else { group };
            let [of_low, of_high] = match groups {
                0 => [V::zero(); 2],
                groups => C::key_scales::<V>(run.key_scales, (number, groups), stride),
            };
            for index in 0..dims / C::HALVES {
                let d = number * dims + index;
                let offset = (number * (dims / C::HALVES) + index) * stride * bits * C::HALVES / 8;
                if offset.is_multiple_of(LINE) {
                    V::prefetch(next.keys.cast::<u8>().wrapping_add(offset));
                }
                let low = C::load::<V, 0>(from.add(offset));
                if groups == 0 { low } else { low.mul(of_low) }.store_half(keys.add(d * RUN));
                if C::HALVES == 2 {
                    C::load::<V, 1>(from.add(offset)).mul(of_high).store_half(keys.add((d + RUN) * RUN));
                }
            }
        }
        let row = dim * bits / 8;
        for token in 0..RUN {
            let from = run.values.cast::<u8>().add(token * row);
            for line in (0..row).step_by(LINE) {
                V::prefetch(next.values.cast::<u8>().wrapping_add(token * row + line));
            }
            let ([mut of_low, mut of_high], mut d) = ([V::zero(); 2], 0);
            while d < dim {
                if groups > 0 && d.is_multiple_of(group) {
                    [of_low, of_high] = C::value_scales::<V>(run.value_scales.add(token * scales), (d / group, groups));
                }
                let at = from.add(d * bits / 8);
                let low = C::load::<V, 0>(at);
                if groups == 0 { low } else { low.mul(of_low) }.store_half(values.add(token * dim + d));
                if C::HALVES == 2 {
                    C::load::<V, 1>(at).mul(of_high).store_half(values.add(token * dim + d + RUN));
                }
                d += RUN * C::HALVES;
            }
        }
    }
}
