//! The ends of products: behind inputs and weights is what is no number, and in front of outputs and behind them is what stays as it is.

mod support;

use memtier::{Bytes, TableSpec, bf16};
use memtier_cuda::{
    Kernels,
    kernels::{Activation, Inputs, KERNELS_OF_MANY_ROWS, Matrix, project, project_add, project_f32, project_gated},
};
use support::{Rig, pool};

/// Elements in front of outputs and behind, and behind inputs and weights: more than a kernel takes of a row at a time.
const BESIDE: usize = 2048;

/// So many others in front of these values, and others behind.
fn beside<T: Copy>(front: usize, values: Vec<T>, other: T) -> Vec<T> {
    [vec![other; front], values, vec![other; BESIDE]].concat()
}

/// A span of that in the step's scratch.
macro_rules! amid {
    ($step:ident, $element:ty, $front:expr, $values:expr, $other:expr) => {{
        let all = beside::<$element>($front, $values, $other);
        let mut span = $step.scratch.take::<$element>(all.len()).unwrap();
        $step.on.write(&mut span, &all).unwrap();
        span
    }};
}

/// What lies there, when nothing beside it was written.
macro_rules! between {
    ($step:ident, $element:ty, $span:expr, $front:expr, $case:expr) => {{
        let mut found = vec![<$element>::default(); $span.len()];
        $step.on.read::<$element>(&$span, &mut found).unwrap();
        let behind = found.split_off(found.len() - BESIDE);
        let of_it = found.split_off($front);
        assert!(found.iter().chain(&behind).all(|x| f64::from(*x) == 77.0), "{}: written beside the output", $case);
        of_it
    }};
}

/// That these are numbers, and as many.
fn same(found: impl ExactSizeIterator<Item = f64>, expected: &[f64], within: f64, case: &str) {
    assert_eq!(found.len(), expected.len(), "{case}");
    for (at, (found, expected)) in found.zip(expected).enumerate() {
        assert!((found - expected).abs() <= within * expected.abs(), "{case}, {at}: {found} is not {expected}");
    }
}

/// A product of constants, each way that it can be left: of `outputs` matrices side by side, or of the first one. In f32 all sums are exact.
fn look(rig: &mut Rig, kernels: &Kernels, rows: usize, columns: usize, outputs: &[usize], front: usize) {
    let case = format!(
        "{rows} x {columns} to {outputs:?}, {front} behind 16 bytes, {kernels:?} {:?}",
        kernels.is_batch_invariant()
    );
    // Rows and matrices of values of their own: what lands in another's place is seen.
    let of_row = |row: usize| (row % 8 + 1) as f32;
    let of_matrix = |index: usize| [1.0f32, 4.0, 2.0][index];
    let mut step = rig.engine.step(&mut rig.stream).unwrap();
    let x: Vec<bf16> = (0..rows).flat_map(|row| vec![bf16::from_f32(of_row(row)); columns]).collect();
    let x = amid!(step, bf16, 0, x, bf16::NAN);
    let weights: Vec<_> = outputs
        .iter()
        .enumerate()
        .map(|(index, outputs)| {
            amid!(step, bf16, 0, vec![bf16::from_f32(of_matrix(index)); outputs * columns], bf16::NAN)
        })
        .collect();
    let matrices: Vec<_> = weights
        .iter()
        .zip(outputs)
        .map(|(span, outputs)| {
            Matrix::new(span.read().range(0..outputs * columns).unwrap(), *outputs, columns).unwrap().at_rest()
        })
        .collect();
    let inputs = Inputs::Plain(x.read().range(0..rows * columns).unwrap());
    let all: usize = outputs.iter().sum();
    let sum = |row: usize, index: usize| f64::from(of_row(row) * of_matrix(index)) * columns as f64;
    let all_of_it: Vec<f64> = (0..rows)
        .flat_map(|row| outputs.iter().enumerate().flat_map(move |(index, outputs)| vec![sum(row, index); *outputs]))
        .collect();
    let first: Vec<f64> = (0..rows).flat_map(|row| vec![sum(row, 0); outputs[0]]).collect();
    let mark = bf16::from_f32(77.0);

    let (long, short) = (front..front + rows * all, front..front + rows * outputs[0]);
    let mut out = amid!(step, bf16, front, vec![bf16::NAN; rows * all], mark);
    project(step.on, kernels, &mut out.range(long.clone()).unwrap(), &matrices, inputs, rows).unwrap();
    let found = between!(step, bf16, out, front, case);
    same(found.iter().map(|x| f64::from(*x)), &all_of_it, 4e-3, &format!("{case}: bf16"));

    let mut out = amid!(step, f32, front, vec![f32::NAN; rows * all], 77.0);
    project_f32(step.on, kernels, &mut out.range(long).unwrap(), &matrices, inputs, rows).unwrap();
    let found = between!(step, f32, out, front, case);
    same(found.iter().map(|x| f64::from(*x)), &all_of_it, 0.0, &format!("{case}: f32"));

    let mut out = amid!(step, f32, front, vec![3.0; rows * outputs[0]], 77.0);
    project_add(step.on, kernels, &mut out.range(short.clone()).unwrap(), matrices[0], inputs, rows).unwrap();
    let found = between!(step, f32, out, front, case);
    let added: Vec<f64> = first.iter().map(|x| x + 3.0).collect();
    same(found.iter().map(|x| f64::from(*x)), &added, 0.0, &format!("{case}: add"));

    // So large that gates are what they are of.
    let mut out = amid!(step, bf16, front, vec![bf16::NAN; rows * outputs[0]], mark);
    let pair = [matrices[0], matrices[0]];
    project_gated(step.on, kernels, &mut out.range(short).unwrap(), pair, inputs, (rows, Activation::Silu)).unwrap();
    let found = between!(step, bf16, out, front, case);
    let gated: Vec<f64> = first.iter().map(|x| x * x).collect();
    same(found.iter().map(|x| f64::from(*x)), &gated, 2e-2, &format!("{case}: gated"));
}

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(512), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

/// Outputs that end in a tile, of matrices that are side by side; and their multiples of eight, which are left otherwise.
const OUTPUTS: [[usize; 3]; 2] = [[37, 6, 21], [40, 8, 24]];

#[test]
fn products_of_few_rows() {
    let Some(mut rig) = rig() else { return };
    let kernels = rig.kernels.clone();
    // Each kernel that is chosen: for short rows, longer ones, and long ones; and of many outputs.
    for (rows, columns) in [(3, 72), (11, 72), (3, 1032), (5, 2056), (20, 2056)] {
        look(&mut rig, &kernels, rows, columns, &OUTPUTS[0], 1);
    }
    for (rows, columns, outputs) in
        [(20, 72, 1030), (3, 192, 16_390), (11, 72, 16_390), (5, 2056, 6150), (11, 2056, 6150)]
    {
        look(&mut rig, &kernels, rows, columns, &[outputs], 1);
    }
}

#[test]
fn products_of_many_rows() {
    let Some(mut rig) = rig() else { return };
    for tile in 0..KERNELS_OF_MANY_ROWS {
        let kernels = rig.kernels.clone().with_tile(tile);
        // Of 16 rows, those that end in either half.
        let rows = [35, 43][tile % 2];
        for (columns, outputs, front) in [(72, OUTPUTS[0], 8), (72, OUTPUTS[1], 8), (136, OUTPUTS[1], 1)] {
            look(&mut rig, &kernels, rows, columns, &outputs, front);
        }
    }
    // In order: also rows whose pieces are of all eight warps, as many of each.
    let kernels = rig.kernels.clone().batch_invariant(true);
    for (rows, columns, outputs) in [(67, 72, 2800), (67, 1024, 2800), (33, 2560, 6150)] {
        look(&mut rig, &kernels, rows, columns, &[outputs], 8);
    }
}

/// Inputs that are normalised on the way: nothing behind them, and behind the norm, is taken either.
#[test]
fn normalised_products() {
    let Some(mut rig) = rig() else { return };
    let kernels = rig.kernels.clone();
    for (rows, columns, outputs) in [(3, 72, 37), (11, 136, 37)] {
        let case = format!("{rows} x {columns} to {outputs}, normed");
        let mut step = rig.engine.step(&mut rig.stream).unwrap();
        let x: Vec<f32> = (0..rows).flat_map(|row| vec![(row + 1) as f32; columns]).collect();
        let (x, norm) = (amid!(step, f32, 0, x, f32::NAN), amid!(step, f32, 0, vec![2.0f32; columns], f32::NAN));
        let weights = amid!(step, bf16, 0, vec![bf16::ONE; outputs * columns], bf16::NAN);
        let matrix = Matrix::new(weights.read().range(0..outputs * columns).unwrap(), outputs, columns).unwrap();
        let (x, weight) = (x.read().range(0..rows * columns).unwrap(), norm.read().range(0..columns).unwrap());
        let mut out = amid!(step, f32, 1, vec![f32::NAN; rows * outputs], 77.0);
        let input = Inputs::Normed { x, weight, epsilon: 0.0 };
        let place = &mut out.range(1..1 + rows * outputs).unwrap();
        project_f32(step.on, &kernels, place, &[matrix], input, rows).unwrap();
        let found = between!(step, f32, out, 1, case);
        same(found.iter().map(|x| f64::from(*x)), &vec![2.0 * columns as f64; rows * outputs], 1e-5, &case);
    }
}
