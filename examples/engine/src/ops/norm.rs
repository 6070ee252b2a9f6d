//! RMS norms, fused with the residual and with the quantisation of what follows.

use engine_kernels::{self as kernels, Norm};
use memtier::{Fits, Host, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, input, output};

use super::{Cpu, launch};

/// `quantized = quantise(norm(x))`, and `float = norm(x)` where `floats` says that float weights follow.
#[allow(clippy::too_many_arguments, reason = "two outputs, two inputs, and their numbers")]
pub fn norm<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    quantized: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    float: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    x: impl Input<f32, P>,
    weight: impl Input<f32, P>,
    (rows, epsilon): (usize, f32),
    floats: bool,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args =
        (output::<u8, _, _>(quantized), output::<f32, _, _>(float), input::<f32, _, _>(x), input::<f32, _, _>(weight));
    on.host_op(args, move |(quantized, float, x, weight)| {
        let norm = Norm { weight, epsilon };
        if floats {
            kernels::rms_norm(&cpu.threads, cpu.isa, norm, x, rows, float).map_err(launch)?;
        }
        kernels::rms_norm_quantize(&cpu.threads, cpu.isa, norm, x, rows, quantized).map(drop).map_err(launch)
    })
}

/// `x += post(delta)` (or `x += delta` without `post_norm`), then [`norm`] of it with weight `pre`.
#[allow(clippy::too_many_arguments, reason = "three outputs, three inputs, and their numbers")]
pub fn residual_norm<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    x: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    quantized: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    float: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    delta: impl Input<f32, P>,
    [post, pre]: [impl Input<f32, P>; 2],
    (rows, epsilon): (usize, f32),
    (post_norm, floats): (bool, bool),
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (
        output::<f32, _, _>(x),
        output::<u8, _, _>(quantized),
        output::<f32, _, _>(float),
        input::<f32, _, _>(delta),
        input::<f32, _, _>(post),
        input::<f32, _, _>(pre),
    );
    on.host_op(args, move |(x, quantized, float, delta, post, pre)| {
        let post = post_norm.then_some(Norm { weight: post, epsilon });
        let pre = Norm { weight: pre, epsilon };
        kernels::residual_norm_quantize(&cpu.threads, cpu.isa, x, delta, post, pre, rows, quantized).map_err(launch)?;
        if floats {
            kernels::rms_norm(&cpu.threads, cpu.isa, pre, x, rows, float).map_err(launch)?;
        }
        Ok(())
    })
}

/// Normalises every head of `x` in place, `heads` of them over all rows.
pub fn head_norm<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    x: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    weight: impl Input<f32, P>,
    heads: usize,
    epsilon: f32,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    on.host_op((output::<f32, _, _>(x), input::<f32, _, _>(weight)), move |(x, weight)| {
        kernels::rms_norm_in_place(&cpu.threads, cpu.isa, Norm { weight, epsilon }, x, heads).map_err(launch)
    })
}
