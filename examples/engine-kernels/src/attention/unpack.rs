//! A chunk of a cache that is not f16, as f16: what the kernel reads. Element times scale, rounded once.

use std::mem::MaybeUninit;

use super::cache::KvShape;
use super::format::{GROUP, KvFormat, MAX_DIM};
use super::kernel::{CHUNK, CHUNK_RUNS, RUN, Run};
use super::lanes::Lanes;

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
}

struct Bf16;
struct Fp8;
struct Q8_0;
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
        KvFormat::Q8_0 | KvFormat::Q4_0 | KvFormat::Q4_0Rotated => GROUP,
    }
}

/// # Safety
///
/// As `Unpacked::fill`; `keys` and `values` have room for a run.
#[inline(always)]
unsafe fn fill_run<V: Lanes, C: Cells>(shape: KvShape, run: &Run, next: &Run, keys: *mut u16, values: *mut u16) {
    let KvShape { head_dim: dim, block_tokens: stride, .. } = shape;
    let (bits, group) = (C::FORMAT.bits(), group::<C>(dim));
    let scales = C::FORMAT.scales(dim);
    // SAFETY: passed on; rows of keys are `stride` elements apart, rows of values `dim`, and a group of 32 four-bit elements is
    // 16 bytes.
    unsafe {
        let from = run.keys.cast::<u8>();
        for number in 0..scales.max(1) {
            let dims = if scales == 0 { dim } else { group };
            let scale = if scales == 0 { V::zero() } else { V::load_half(run.key_scales.add(number * stride)) };
            for index in 0..dims / C::HALVES {
                let d = number * dims + index;
                let offset = (number * (dims / C::HALVES) + index) * stride * bits * C::HALVES / 8;
                if offset.is_multiple_of(LINE) {
                    V::prefetch(next.keys.cast::<u8>().wrapping_add(offset));
                }
                let low = C::load::<V, 0>(from.add(offset));
                if scales == 0 { low } else { low.mul(scale) }.store_half(keys.add(d * RUN));
                if C::HALVES == 2 {
                    C::load::<V, 1>(from.add(offset)).mul(scale).store_half(keys.add((d + RUN) * RUN));
                }
            }
        }
        let row = dim * bits / 8;
        for token in 0..RUN {
            let from = run.values.cast::<u8>().add(token * row);
            for line in (0..row).step_by(LINE) {
                V::prefetch(next.values.cast::<u8>().wrapping_add(token * row + line));
            }
            let (mut scale, mut d) = (V::zero(), 0);
            while d < dim {
                if scales > 0 && d.is_multiple_of(group) {
                    scale = V::splat_half(run.value_scales.add(token * scales + d / group));
                }
                let at = from.add(d * bits / 8);
                let low = C::load::<V, 0>(at);
                if scales == 0 { low } else { low.mul(scale) }.store_half(values.add(token * dim + d));
                if C::HALVES == 2 {
                    C::load::<V, 1>(at).mul(scale).store_half(values.add(token * dim + d + RUN));
                }
                d += RUN * C::HALVES;
            }
        }
    }
}
