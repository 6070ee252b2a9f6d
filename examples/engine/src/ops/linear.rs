//! Matrices: embedding look-up, projections, and the quantisation of their inputs.

use engine_kernels::{self as kernels, Activation, Input as Rows, Packed as Matrix, Projection, QuantRows};
use memtier::{
    Fits, Host, Input, Is, LaunchError, Packed, PackedTensor, Place, Recorder, SameElement, StableSpanMut, input,
    output, packed,
};

use super::{Cpu, launch};
use crate::weights::WeightFormat;

/// A matrix as the kernels take it.
fn matrix<'x>(tensor: &PackedTensor<'x, WeightFormat>) -> Result<Matrix<'x>, LaunchError> {
    let WeightFormat::Packed(format) = tensor.meta.format else {
        let why = "it is stored for another device";
        return Err(LaunchError::Unsupported { what: "weights", why });
    };
    Matrix::new(format, tensor.meta.rows, tensor.meta.columns, tensor.bytes).map_err(launch)
}

/// The inputs of projections: `rows` x `columns`, quantised for quantised weights and as they are for float weights.
#[derive(Clone, Copy)]
pub struct Activations<Q, F> {
    /// Quantised rows (u8), [`QuantRows::bytes`] long.
    pub quantized: Q,
    /// The rows themselves (f32); read by float weights only.
    pub float: F,
    /// How many rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
}

/// The rows in the form that `weights` multiplies.
fn rows<'x>(
    weights: &Matrix<'_>,
    quantized: &'x [u8],
    float: &'x [f32],
    (rows, columns): (usize, usize),
) -> Result<Rows<'x>, LaunchError> {
    if weights.format().is_float() {
        let found = float.len();
        let x = float.get(..rows * columns);
        let x = x.ok_or(LaunchError::Shape { what: "activations", expected: rows * columns, found })?;
        return Ok(Rows::Float { x, rows, cols: columns });
    }
    let bytes = QuantRows::bytes(rows, columns).unwrap_or(usize::MAX);
    let found = quantized.len();
    let quantized = quantized.get(..bytes);
    let quantized = quantized.ok_or(LaunchError::Shape { what: "quantised rows", expected: bytes, found })?;
    QuantRows::new(rows, columns, quantized).map(Rows::Quant).map_err(launch)
}

/// `out[row] = factor * table[tokens[row]]`, `out` is tokens x hidden.
pub fn embed<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    table: impl Input<Packed<WeightFormat>, P>,
    tokens: impl Input<u32, P>,
    factor: f32,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let args = (output::<f32, _, _>(out), packed::<WeightFormat, _, _>(table), input::<u32, _, _>(tokens));
    on.host_op(args, move |(out, table, tokens)| {
        kernels::embed(&cpu.threads, cpu.isa, &matrix(&table)?, tokens, factor, out).map_err(launch)
    })
}

/// Quantises `rows` x `columns` values into `out`.
pub fn quantize<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<u8>, impl Fits<P>>,
    x: impl Input<f32, P>,
    (rows, columns): (usize, usize),
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    on.host_op((output::<u8, _, _>(out), input::<f32, _, _>(x)), move |(out, x)| {
        kernels::quantize_rows(&cpu.threads, cpu.isa, x, rows, columns, out).map(drop).map_err(launch)
    })
}

/// `out = weights x`, `out` is rows x the matrix's rows.
pub fn project<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    weights: impl Input<Packed<WeightFormat>, P>,
    x: Activations<impl Input<u8, P>, impl Input<f32, P>>,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let shape = (x.rows, x.columns);
    let args = (
        output::<f32, _, _>(out),
        packed::<WeightFormat, _, _>(weights),
        input::<u8, _, _>(x.quantized),
        input::<f32, _, _>(x.float),
    );
    on.host_op(args, move |(out, weights, quantized, float)| {
        let weights = matrix(&weights)?;
        let rows = rows(&weights, quantized, float, shape)?;
        kernels::matmul(&cpu.threads, cpu.isa, &weights, rows, out).map_err(launch)
    })
}

/// Query, key and value of the same rows, in one parallel region.
pub fn project_qkv<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    [q, k, v]: [&mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>; 3],
    [wq, wk, wv]: [impl Input<Packed<WeightFormat>, P>; 3],
    x: Activations<impl Input<u8, P>, impl Input<f32, P>>,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let shape = (x.rows, x.columns);
    let args = (
        output::<f32, _, _>(q),
        output::<f32, _, _>(k),
        output::<f32, _, _>(v),
        packed::<WeightFormat, _, _>(wq),
        packed::<WeightFormat, _, _>(wk),
        packed::<WeightFormat, _, _>(wv),
        input::<u8, _, _>(x.quantized),
        input::<f32, _, _>(x.float),
    );
    on.host_op(args, move |(q, k, v, wq, wk, wv, quantized, float)| {
        let [wq, wk, wv] = [matrix(&wq)?, matrix(&wk)?, matrix(&wv)?];
        let is_float = wq.format().is_float();
        if [&wk, &wv].iter().any(|weights| weights.format().is_float() != is_float) {
            // Float and quantised weights take different forms of the rows: one region each.
            for (weights, out) in [(wq, q), (wk, k), (wv, v)] {
                let rows = rows(&weights, quantized, float, shape)?;
                kernels::matmul(&cpu.threads, cpu.isa, &weights, rows, out).map_err(launch)?;
            }
            return Ok(());
        }
        let rows = rows(&wq, quantized, float, shape)?;
        let projection = |weights, out| Projection { weights, out, add: false };
        let mut projections = [projection(wq, q), projection(wk, k), projection(wv, v)];
        kernels::matmul_many(&cpu.threads, cpu.isa, rows, &mut projections).map_err(launch)
    })
}

/// `out = activation(gate x) * (up x)`, `out` is rows x ffn.
pub fn project_gated<P: Place<Space: Is<Host>>>(
    on: &Recorder<P>,
    cpu: &Cpu,
    out: &mut StableSpanMut<'_, impl SameElement<f32>, impl Fits<P>>,
    [gate, up]: [impl Input<Packed<WeightFormat>, P>; 2],
    activation: Activation,
    x: Activations<impl Input<u8, P>, impl Input<f32, P>>,
) -> Result<(), LaunchError> {
    let cpu = cpu.clone();
    let shape = (x.rows, x.columns);
    let args = (
        output::<f32, _, _>(out),
        packed::<WeightFormat, _, _>(gate),
        packed::<WeightFormat, _, _>(up),
        input::<u8, _, _>(x.quantized),
        input::<f32, _, _>(x.float),
    );
    on.host_op(args, move |(out, gate, up, quantized, float)| {
        let (gate, up) = (matrix(&gate)?, matrix(&up)?);
        let rows = rows(&gate, quantized, float, shape)?;
        kernels::matmul_gated(&cpu.threads, cpu.isa, &gate, &up, activation, rows, out).map_err(launch)
    })
}

/// `out[i] = rows[picks[i]]`, rows of `width` units: the last tokens of a pass.
pub fn gather<P: Place<Space: Is<Host>>, T: memtier::Plain>(
    on: &Recorder<P>,
    out: &mut StableSpanMut<'_, T, impl Fits<P>>,
    rows: impl Input<T, P>,
    picks: impl Input<u32, P>,
    width: usize,
) -> Result<(), LaunchError> {
    on.host_op(
        (output::<T, _, _>(out), input::<T, _, _>(rows), input::<u32, _, _>(picks)),
        move |(out, rows, picks)| {
            for (out, pick) in out.chunks_exact_mut(width).zip(picks) {
                let start = *pick as usize * width;
                let (limit, found) = ((rows.len() / width) as u64, u64::from(*pick));
                let row =
                    rows.get(start..start + width).ok_or(LaunchError::Index { what: "picked row", limit, found })?;
                out.copy_from_slice(row);
            }
            Ok(())
        },
    )
}
