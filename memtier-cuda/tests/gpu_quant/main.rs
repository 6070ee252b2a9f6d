//! Projections with weights of 4 to 8 bits against f64 on the CPU, from the blocks of a model file.

mod blocks;
mod large;
mod normed;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod unpacked;

use blocks::{Random, matrix};
use memtier::{Bytes, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, TableSpec, bf16};
use memtier_cuda::kernels::{
    Activation, Tileable, TiledMatrix, Tiling, project_tiled, project_tiled_add, project_tiled_f32,
    project_tiled_gated, unpack_tiled,
};
use support::{Rig, Rng, distance, pool, wide};

/// Reads a span back.
macro_rules! read {
    ($step:ident, $element:ty, $span:expr) => {{
        let mut found = vec![<$element>::default(); $span.len()];
        $step.on.read::<$element>(&$span, &mut found).unwrap();
        found
    }};
}

/// A span of these values in the step's scratch, behind which is what is no number.
macro_rules! span {
    ($step:ident, $element:ty, $values:expr, $behind:expr) => {{
        let all = [&$values[..], &[$behind; 1024]].concat();
        let mut span = $step.scratch.take::<$element>(all.len()).unwrap();
        $step.on.write(&mut span, &all).unwrap();
        span
    }};
}

/// Reads such a span back, and sees that nothing was written behind it.
macro_rules! read_whole {
    ($step:ident, $element:ty, $span:expr) => {{
        let mut found = read!($step, $element, $span);
        let behind = found.split_off($span.len() - 1024);
        assert!(behind.iter().all(|x| x.is_nan()), "written behind the last row");
        found
    }};
}

use {read, read_whole, span};

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(64), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

/// Sums of rows of `x` with rows of weights: rows x outputs.
fn products(x: &[f64], weights: &[f64], columns: usize) -> Vec<Vec<f64>> {
    let row = |x: &[f64]| weights.chunks(columns).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
    x.chunks(columns).map(row).collect()
}

/// What a gate becomes.
fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh()),
    }
}

/// Every shape of one kind of block; `within` is how far sums may be.
fn every_shape<B: Random>(within: f64) {
    let shapes = [
        (1, 1, vec![1]),
        (1, 3, vec![70, 16]),
        (8, 5, vec![33]),
        (9, 2, vec![17, 64, 5]),
        (16, 9, vec![130]),
        (37, 4, vec![50]),
    ];
    shapes_of::<B>(within, &shapes);
}

/// Rows, blocks of a row of weights, and outputs of each matrix.
type Shape = (usize, usize, Vec<usize>);

/// Products of these shapes, in every form, against f64.
fn shapes_of<B: Random>(within: f64, shapes: &[Shape]) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(51);
    let mut worst = 0.0f64;
    for &(rows, blocks, ref outputs) in shapes {
        // Weights of 4 bits are rounded to bf16 for more rows.
        let within = if rows > 16 && B::TILING == Tiling::Q4 { within.max(2.4e-3) } else { within };
        // Also rows that end in the middle of a tile.
        let columns = blocks * B::PER;
        let x = rng.bf16s(rows * columns);
        let x64: Vec<f64> = wide(&x).collect();
        let made: Vec<_> = outputs.iter().map(|outputs| matrix::<B>(&mut rng, *outputs, columns)).collect();
        let parts: Vec<_> = made.iter().map(|(_, values)| products(&x64, values, columns)).collect();
        let expected: Vec<f64> =
            (0..rows).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect();
        let all = outputs.iter().sum::<usize>();
        let mut step = engine.step(&mut stream).unwrap();
        let span = span!(step, bf16, x, bf16::NAN);
        let x = span.read().range(0..rows * columns).unwrap();
        let spans: Vec<_> = made.iter().map(|(tiles, _)| span!(step, u8, tiles, 0xff)).collect();
        let matrices: Vec<_> = spans
            .iter()
            .zip(outputs)
            .map(|(span, outputs)| {
                let tiles = span.read().range(0..span.len() - 1024).unwrap();
                TiledMatrix::new(tiles, B::TILING, *outputs, columns).unwrap().at_rest()
            })
            .collect();
        let case = format!("{} {rows} x {columns} to {outputs:?}", B::NAME);

        let mut out = span!(step, f32, vec![f32::NAN; rows * all], f32::NAN);
        project_tiled_f32(step.on, &kernels, &mut out.range(0..rows * all).unwrap(), &matrices, x, rows).unwrap();
        let first = read_whole!(step, f32, out);
        let far = distance(first.iter().map(|x| f64::from(*x)), &expected);
        assert!(far < within, "{case}: {far}");
        worst = worst.max(far);
        project_tiled_f32(step.on, &kernels, &mut out.range(0..rows * all).unwrap(), &matrices, x, rows).unwrap();
        assert!(read_whole!(step, f32, out) == first, "{case}: the same inputs gave other bits");

        let mut out = step.scratch.take::<bf16>(rows * all).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * all]).unwrap();
        project_tiled(step.on, &kernels, &mut out, &matrices, x, rows).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 4.2e-3, "{case}: bf16 {far}");

        let before = rng.f32s(rows * outputs[0]);
        let mut out = step.scratch.take::<f32>(before.len()).unwrap();
        step.on.write(&mut out, &before).unwrap();
        project_tiled_add(step.on, &kernels, &mut out, matrices[0], x, rows).unwrap();
        let sum: Vec<f64> = parts[0].iter().flatten().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &sum);
        assert!(far < within, "{case}: add {far}");

        let (other, values) = matrix::<B>(&mut rng, outputs[0], columns);
        let mut span = step.scratch.take::<u8>(other.len()).unwrap();
        step.on.write(&mut span, &other).unwrap();
        let pair = [matrices[0], TiledMatrix::new(span.read(), B::TILING, outputs[0], columns).unwrap()];
        let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs[0]], bf16::NAN);
        let activation = if rows == 1 || rows == 9 { Activation::GeluTanh } else { Activation::Silu };
        let of = &mut out.range(0..rows * outputs[0]).unwrap();
        project_tiled_gated(step.on, &kernels, of, pair, x, (rows, activation)).unwrap();
        let up = products(&x64, &values, columns);
        let gated = |(gate, up): (&f64, &f64)| activated(activation, *gate) * up;
        let expected: Vec<f64> = parts[0].iter().flatten().zip(up.iter().flatten()).map(gated).collect();
        let far = distance(wide(&read_whole!(step, bf16, out)), &expected);
        assert!(far < 8e-3, "{case}: gated {far}");
    }
    println!("{}: {worst:.2e}", B::NAME);
}

#[test]
fn blocks_of_32_of_every_kind() {
    every_shape::<Q8_0>(2e-5);
    every_shape::<Q4_0>(2e-5);
    every_shape::<Q4_1>(2e-5);
    every_shape::<Q5_0>(2e-5);
}

#[test]
fn super_blocks_whose_scales_are_rounded() {
    every_shape::<Q4_K>(6e-4);
    every_shape::<Q6_K>(6e-4);
}

#[test]
fn matrices_that_are_tiled_otherwise_share_rows_of_outputs() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(54);
    let (columns, rows) = (256, 10);
    let x = rng.bf16s(rows * columns);
    let made = [
        (Tiling::Q4, 70, matrix::<Q4_1>(&mut rng, 70, columns)),
        (Tiling::Q4, 33, matrix::<Q4_0>(&mut rng, 33, columns)),
        (Tiling::Q6, 18, matrix::<Q6_K>(&mut rng, 18, columns)),
    ];
    let mut step = engine.step(&mut stream).unwrap();
    let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
    step.on.write(&mut inputs, &x).unwrap();
    let mut spans = Vec::new();
    for (.., (tiles, _)) in &made {
        let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
        step.on.write(&mut span, tiles).unwrap();
        spans.push(span);
    }
    let x64: Vec<f64> = wide(&x).collect();
    for order in [[0, 1, 2], [2, 0, 1], [0, 2, 1], [1, 0, 1]] {
        let all: usize = order.iter().map(|at| made[*at].1).sum();
        let matrices = order.map(|at| {
            let (tiling, outputs, _) = made[at];
            TiledMatrix::new(spans[at].read(), tiling, outputs, columns).unwrap()
        });
        let parts = order.map(|at| products(&x64, &made[at].2.1, columns));
        let expected: Vec<f64> =
            (0..rows).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect();
        let mut out = step.scratch.take::<bf16>(rows * all).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * all]).unwrap();
        project_tiled(step.on, &kernels, &mut out, &matrices, inputs.read(), rows).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 4.2e-3, "{order:?}: bf16 {far}");
        let mut out = step.scratch.take::<f32>(rows * all).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * all]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &matrices, inputs.read(), rows).unwrap();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < 6e-4, "{order:?}: f32 {far}");
        let values: Vec<f64> = order.iter().flat_map(|at| made[*at].2.1.iter().copied()).collect();
        let mut out = step.scratch.take::<bf16>(values.len()).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; values.len()]).unwrap();
        unpack_tiled(step.on, &kernels, &mut out, &matrices).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &values);
        assert!(far < 4.2e-3, "{order:?}: unpacked {far}");
    }
}

#[test]
fn rows_do_not_depend_on_those_beside_them_where_that_is_asked_for() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let kernels = kernels.batch_invariant(true);
    let (mut rng, columns, outputs, rows) = (Rng(55), 512, 40, 37);
    let x = rng.bf16s(rows * columns);
    let (tiles, _) = matrix::<Q4_K>(&mut rng, outputs, columns);
    let mut step = engine.step(&mut stream).unwrap();
    let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
    let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
    step.on.write(&mut inputs, &x).unwrap();
    step.on.write(&mut span, &tiles).unwrap();
    let matrix = TiledMatrix::new(span.read(), Tiling::Q4, outputs, columns).unwrap();
    let mut of = |rows: usize| {
        let mut out = step.scratch.take::<f32>(rows * outputs).unwrap();
        let x = inputs.read().range(0..rows * columns).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &[matrix], x, rows).unwrap();
        read!(step, f32, out)
    };
    let all = of(rows);
    for rows in [1, 8, 9, 16, 17] {
        assert!(of(rows) == all[..rows * outputs], "{rows} rows alone have other bits");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_the_launch() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let (four, eight) = (step.scratch.take::<u8>(640 * 2).unwrap(), step.scratch.take::<u8>(1088).unwrap());
    let more = step.scratch.take::<u8>(1088 * 2).unwrap();
    let x = step.scratch.take::<bf16>(64).unwrap();
    let mut out = step.scratch.take::<bf16>(48).unwrap();
    let refused = TiledMatrix::new(eight.read(), Q8_0::TILING, 16, 128).err().unwrap();
    assert!(refused.to_string().contains("tiled matrix: bytes"), "{refused}");
    let refused = TiledMatrix::new(eight.read(), Q8_0::TILING, 16, 65).err().unwrap();
    assert!(refused.to_string().contains("multiple of 32"), "{refused}");
    let (a, b) = (
        TiledMatrix::new(four.read(), Q4_0::TILING, 32, 64).unwrap(),
        TiledMatrix::new(eight.read(), Q8_0::TILING, 16, 64).unwrap(),
    );
    let pair = (1, Activation::Silu);
    let refused = project_tiled_gated(step.on, &kernels, &mut out, [a, b], x.read(), pair).unwrap_err();
    assert!(refused.to_string().contains("up rows"), "{refused}");
    let b = TiledMatrix::new(more.read(), Q8_0::TILING, 32, 64).unwrap();
    let refused = project_tiled_gated(step.on, &kernels, &mut out, [a, b], x.read(), pair).unwrap_err();
    assert!(refused.to_string().contains("tiled alike"), "{refused}");
    let refused = unpack_tiled(step.on, &kernels, &mut out, &[a]).unwrap_err();
    assert!(refused.to_string().contains("unpack_tiled: out"), "{refused}");
    let fp8 = TiledMatrix::new(eight.read(), Tiling::F8, 16, 64).unwrap();
    let mut part = step.scratch.take::<bf16>(16 * 64).unwrap();
    let refused = unpack_tiled(step.on, &kernels, &mut part, &[fp8]).unwrap_err();
    assert!(refused.to_string().contains("e4m3"), "{refused}");
    let refused = project_tiled(step.on, &kernels, &mut out, &[a], x.read(), 1).unwrap_err();
    assert!(refused.to_string().contains("project_tiled: out"), "{refused}");
}
