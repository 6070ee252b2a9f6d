//! Gated activations.

use memtier::{Cuda, Fits, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, bf16};

use super::{aligned, entries::Kernel, expect, narrow, product, require, vector::walk};
use crate::{
    Kernels,
    launch::{Arg, launch},
};

/// The activation of the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// The tanh form of GELU.
    GeluTanh,
}

/// `out = act(gate) * up`: `out` is rows x `columns`, and every row of `gate_up` holds its gate and, behind it, its value.
///
/// # Errors
/// [`LaunchError::Shape`] when `gate_up` is not twice `out`, or `out` no whole rows; [`LaunchError::Unsupported`] for
/// columns that are no multiple of 8.
pub fn gate<P: Place<Space: Is<Cuda>>>(
    on: &Recorder<P>,
    kernels: &Kernels,
    out: &mut StableSpanMut<'_, impl SameElement<bf16>, impl Fits<P>>,
    gate_up: impl Input<bf16, P>,
    columns: usize,
    activation: Activation,
) -> Result<(), LaunchError> {
    let (out, gate_up) = (out.output::<bf16, P>(on), gate_up.input());
    require(columns > 0 && columns.is_multiple_of(8), "gate: columns", "they must be a multiple of 8")?;
    let rows = out.units() / columns;
    expect("gate: out", product("gate", &[rows, columns])?, out.units())?;
    expect("gate: gate_up", product("gate", &[rows, columns, 2])?, gate_up.units())?;
    let pieces = out.units() / 8;
    if pieces == 0 {
        return Ok(());
    }
    aligned("gate", 16, &[out.addr(), gate_up.addr()])?;
    let grid = walk(kernels, pieces);
    let words = [out.addr(), gate_up.addr(), narrow("gate: columns", columns)?.word(), pieces as u64];
    let kernel = match activation {
        Activation::Silu => Kernel::SiluGateBf16,
        Activation::GeluTanh => Kernel::GeluGateBf16,
    };
    let kernels = kernels.clone();
    on.launch(&[out.stream(), gate_up.stream()], move |queue| {
        // SAFETY: the kernel's own arguments; it writes `pieces` eights of `out` and reads two eights for each, which the
        // spans hold. `out` came from `&mut`. The caller's views (or the graph) keep them.
        unsafe { launch(queue, kernels.function(kernel), grid, &words) }
    })
}
