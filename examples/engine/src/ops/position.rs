//! Rotary positions.

use std::sync::Arc;

use engine_kernels::{self as kernels, RopeAngles, RopeParams, RopeStyle};
use memtier::{Fits, Host, Input, Is, LaunchError, Place, Recorder, SameElement, StableSpanMut, input, output};

use super::{Cpu, launch};
use crate::streaming::Streaming;

/// One rotary embedding of a model; layers of one kind share it.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// Elements of a head that rotate.
    pub dims: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// What positions are multiplied with.
    pub scale: f32,
    /// Divisors of the frequencies (Llama 3.1 and later), `dims / 2` of them.
    pub factors: Option<Arc<[f32]>>,
    /// Which elements form a pair.
    pub style: RopeStyle,
}

/// The cosines and sines of `positions`: positions x `dims` values.
pub fn angles<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    positions: impl Input<u32, P>,
    rope: &Rope,
) -> Result<(), LaunchError> {
    let (cpu, rope) = (cpu.clone(), rope.clone());
    on.host_op((output::<f32, _, _>(out), input::<u32, _, _>(positions)), move |(out, positions)| {
        let Rope { dims, base, scale, .. } = rope;
        let params = RopeParams { dims, base, scale, factors: rope.factors.as_deref() };
        kernels::rope_angles(&cpu.threads, params, positions, out).map(drop).map_err(launch)
    })
}

/// The same for the look at the sinks of sequences that run past their planned length: of the places of `positions` among the
/// tokens that are kept.
pub fn angles_for_sinks<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    positions: impl Input<u32, P>,
    rope: &Rope,
    streaming: Streaming,
) -> Result<(), LaunchError> {
    let (cpu, rope) = (cpu.clone(), rope.clone());
    on.host_op((output::<f32, _, _>(out), input::<u32, _, _>(positions)), move |(out, positions)| {
        let Rope { dims, base, scale, .. } = rope;
        let params = RopeParams { dims, base, scale, factors: rope.factors.as_deref() };
        for (positions, out) in positions.chunks(TILE).zip(out.chunks_mut(TILE * dims)) {
            let mut places = [0; TILE];
            for (place, position) in places.iter_mut().zip(positions) {
                *place = streaming.place(*position);
            }
            kernels::rope_angles(&cpu.threads, params, &places[..positions.len()], out).map(drop).map_err(launch)?;
        }
        Ok(())
    })
}

/// Copies `from` to `to`, which is no shorter.
pub fn copy<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    to: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    from: impl Input<f32, P>,
) -> Result<(), LaunchError> {
    on.host_op((output::<f32, _, _>(to), input::<f32, _, _>(from)), move |(to, from)| {
        let (expected, found) = (from.len(), to.len());
        let to = to.get_mut(..expected).ok_or(LaunchError::Shape { what: "copied queries", expected, found })?;
        to.copy_from_slice(from);
        Ok(())
    })
}

/// Positions that are listed on the stack.
const TILE: usize = 512;

/// Rotates `x` in place: rows x `heads` x `head_dim`.
pub fn rotate<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    x: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    angles: impl Input<f32, P>,
    rope: &Rope,
    (rows, heads, head_dim): (usize, usize, usize),
) -> Result<(), LaunchError> {
    let (cpu, style, dims) = (cpu.clone(), rope.style, rope.dims);
    on.host_op((output::<f32, _, _>(x), input::<f32, _, _>(angles)), move |(x, angles)| {
        let angles = RopeAngles::new(rows, dims, angles).map_err(launch)?;
        kernels::rope(&cpu.threads, cpu.isa, style, angles, x, heads, head_dim).map_err(launch)
    })
}
