//! Stand-ins for CUDA kernels: the signatures of launch wrappers, and nothing is launched.

use memtier::{Cuda, Input, Is, LaunchError, Output, Place, Recorder};

/// `out += x`.
///
/// # Errors
/// Never: there is no device.
pub fn add_assign<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    out: &mut impl Output<f32, P>,
    x: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let (_out, _x) = (out.span().output::<f32, P>(on), x.input());
    Ok(())
}

/// `out = weight * x`.
///
/// # Errors
/// Never: there is no device.
pub fn matmul<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    rows: usize,
    out: &mut impl Output<f32, P>,
    weight: impl Input<f32, P>,
    x: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    let (_rows, _out, _weight, _x) = (rows, out.span().output::<f32, P>(on), weight.input(), x.input());
    Ok(())
}
