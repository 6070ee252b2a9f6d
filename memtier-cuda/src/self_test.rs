//! Whether an instruction that could only be compiled does what is believed of it: asked once, when kernels are loaded on a device
//! that has it.
#![expect(clippy::disallowed_methods, reason = "a backend: a kibibyte, while kernels are loaded")]

use std::{ffi::c_void, ptr, sync::Arc};

use cudarc::driver::sys;

use crate::{
    driver::{Context, check},
    error::{DriverError, KernelError},
    kernels::entries::Kernel,
    module::Kernels,
};

/// Lanes of a warp; words of fragments of a lane, and what it gets.
const LANES: usize = 32;
const WORDS: usize = 8;
const SUMS: usize = 4;
/// How far both may be from each other, of the largest: the hardware may cut where f32 rounds.
const APART: f32 = 1e-4;

/// Page-locked memory that kernels reach, until it is dropped.
struct Shared(*mut c_void);

impl Shared {
    fn take(context: &Context, bytes: usize) -> Result<Self, DriverError> {
        let mut at = ptr::null_mut();
        context.acquire("cuMemHostAlloc", || {
            // SAFETY: writes an address, which is given back in `drop`.
            unsafe { sys::cuMemHostAlloc(&mut at, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) }
        })?;
        Ok(Shared(at))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: taken once, given back once; the stream was waited for, or failed.
        let _ = unsafe { sys::cuMemFreeHost(self.0) };
    }
}

/// Products of NVFP4 by the instruction and by what stands in for it elsewhere, of fragments with every bit at random (but for scales,
/// which are numbers of about one).
pub(crate) fn nvfp4(kernels: &Kernels, context: &Arc<Context>) -> Result<(), KernelError> {
    context.bind()?;
    let (words, sums) = (LANES * WORDS, LANES * SUMS);
    let memory = Shared::take(context, (words + 2 * sums) * 4)?;
    let mut state = 1u64;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    for at in 0..words {
        // Every byte of a scale from 0x30 to 0x3f: a half to nearly two.
        let word = if at % WORDS < 6 { next() } else { 0x3030_3030 | next() & 0x0f0f_0f0f };
        // SAFETY: inside of what was taken.
        unsafe { memory.0.cast::<u32>().add(at).write(word) };
    }
    for at in words..words + 2 * sums {
        // SAFETY: as above.
        unsafe { memory.0.cast::<f32>().add(at).write(f32::NAN) };
    }
    let address = memory.0 as u64;
    let (fast, slow) = (address + words as u64 * 4, address + (words + sums) as u64 * 4);
    let arguments = [fast, slow, address];
    let mut pointers = arguments.each_ref().map(|word| ptr::from_ref(word).cast::<c_void>().cast_mut());
    let function = kernels.function(Kernel::Nvf4BothWays).raw;
    let (none, default) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a loaded function with its own arguments, which point to memory of the sizes that one warp reads and writes; it
    // lives until the stream is done.
    let result =
        unsafe { sys::cuLaunchKernel(function, 1, 1, 1, LANES as u32, 1, 1, 0, default, pointers.as_mut_ptr(), none) };
    check("cuLaunchKernel", result)?;
    // SAFETY: the default stream of the thread's context.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(default) })?;
    // SAFETY: written by the kernel, which is done, or numbers from above.
    let read = |at: usize| unsafe { memory.0.cast::<f32>().add(at).read() };
    let found = std::array::from_fn(|at| read(words + at));
    let expected = std::array::from_fn(|at| read(words + sums + at));
    compare(&found, &expected)
}

/// Whether the instruction gave what was expected.
fn compare(found: &[f32; LANES * SUMS], expected: &[f32; LANES * SUMS]) -> Result<(), KernelError> {
    let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = (found - expected).abs();
        if apart.is_nan() || apart > APART * most {
            let (lane, element) = (at / SUMS, at % SUMS);
            let (found, expected) = (found.to_string(), expected.to_string());
            return Err(KernelError::Instruction { name: "mma.mxf4nvf4", lane, element, found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_gives_something_else_is_refused_with_the_place() {
        let expected = std::array::from_fn(|at| at as f32);
        compare(&expected, &expected).unwrap();
        for wrong in [f32::NAN, 12.5] {
            let mut found = expected;
            found[13] = wrong;
            let error = compare(&found, &expected).unwrap_err();
            assert!(matches!(error, KernelError::Instruction { lane: 3, element: 1, .. }), "{error}");
            assert!(error.to_string().contains("mxf4nvf4") && error.to_string().contains("13"), "{error}");
        }
    }
}
