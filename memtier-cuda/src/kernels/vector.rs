//! Element-wise arithmetic: the first example, from span to graph.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut};

use super::{entries::Kernel, expect};
use crate::{
    Kernels,
    launch::{Arg, Grid, launch},
};

/// A grid of 256 threads a block that walks over `items`, at most eight blocks a multiprocessor.
pub(super) fn walk(kernels: &Kernels, items: usize) -> Grid {
    let most = kernels.multiprocessors().saturating_mul(8).max(1);
    let blocks = u32::try_from(items.div_ceil(256)).unwrap_or(u32::MAX).clamp(1, most);
    Grid { blocks: (blocks, 1, 1), threads: 256, shared: 0 }
}

/// `out[i] = factor * x[i]`.
///
/// # Errors
/// [`LaunchError::Shape`] when the lengths differ.
pub fn scale<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    x: impl Input<f32, P>,
    factor: f32,
) -> Result<(), LaunchError> {
    let (out, x) = (out.output::<f32, P>(on), x.input());
    expect("scale: x", out.units(), x.units())?;
    let grid = walk(kernels, out.units());
    let words = [out.addr(), x.addr(), factor.word(), out.units() as u64];
    on.launch_keeping(&[out.stream(), x.stream()], kernels, move |queue, kernels| {
        // SAFETY: the kernel's own arguments; it writes `out` and reads `x`, both as long as the count, which the caller's
        // views (or the graph) keep. `out` came from `&mut`, so it overlaps nothing.
        unsafe { launch(queue, kernels.function(Kernel::ScaleF32), grid, &words) }
    })
}

/// `out[i] = a[i] + b[i]`.
///
/// # Errors
/// [`LaunchError::Shape`] when the lengths differ.
pub fn add<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    a: impl Input<f32, P>,
    b: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let (out, a, b) = (out.output::<f32, P>(on), a.input(), b.input());
    expect("add: a", out.units(), a.units())?;
    expect("add: b", out.units(), b.units())?;
    let grid = walk(kernels, out.units());
    let words = [out.addr(), a.addr(), b.addr(), out.units() as u64];
    on.launch_keeping(&[out.stream(), a.stream(), b.stream()], kernels, move |queue, kernels| {
        // SAFETY: as in `scale`.
        unsafe { launch(queue, kernels.function(Kernel::AddF32), grid, &words) }
    })
}
