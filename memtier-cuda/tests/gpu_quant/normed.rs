//! Inputs that are normalised on the way.

use memtier::{Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, bf16};
use memtier_cuda::kernels::{Activation, Inputs, TiledMatrix, project_tiled_f32, project_tiled_gated};

use crate::{
    blocks::{Random, matrix},
    products, read, rig,
    support::{Rig, Rng, distance, wide},
};

/// Inputs that are normalised on the way, into matrices side by side and gated ones.
fn normed<B: Random>(within: f64) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(56);
    for (rows, blocks, outputs) in [(1, 1, 17), (3, 5, 40), (8, 3, 2100)] {
        let columns = blocks * B::PER;
        let (mut x, weight) = (rng.f32s(rows * columns), rng.f32s(columns));
        // So small that a norm without its epsilon is seen to be wrong.
        x.iter_mut().for_each(|x| *x *= 3e-3);
        let made = [matrix::<B>(&mut rng, outputs, columns), matrix::<B>(&mut rng, outputs, columns)];
        let mut step = engine.step(&mut stream).unwrap();
        let mut inputs = step.scratch.take::<f32>(x.len()).unwrap();
        let mut norm = step.scratch.take::<f32>(columns).unwrap();
        step.on.write(&mut inputs, &x).unwrap();
        step.on.write(&mut norm, &weight).unwrap();
        let x = Inputs::Normed { x: inputs.read(), weight: norm.read(), epsilon: 1e-5 };
        let mut spans = Vec::new();
        for (tiles, _) in &made {
            let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
            step.on.write(&mut span, tiles).unwrap();
            spans.push(span);
        }
        let matrices = [0, 1].map(|at: usize| TiledMatrix::new(spans[at].read(), B::TILING, outputs, columns).unwrap());
        // What is multiplied is rounded to bf16, and divided behind the product.
        let all = read!(step, f32, inputs);
        let rounded = all.chunks(columns).flat_map(|row| {
            let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
            let rms = (squares / columns as f64 + 1e-5).sqrt();
            row.iter().zip(&weight).map(move |(x, w)| f64::from(bf16::from_f32(x * w).to_f32()) / rms)
        });
        let rounded: Vec<f64> = rounded.collect();
        let parts = [0, 1].map(|at: usize| products(&rounded, &made[at].1, columns));
        let case = format!("{} {rows} x {columns} to 2 x {outputs}, normed", B::NAME);
        let mut out = step.scratch.take::<f32>(rows * outputs * 2).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * outputs * 2]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &matrices, x, rows).unwrap();
        let expected: Vec<f64> =
            (0..rows).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < within, "{case}: {far}");
        let mut out = step.scratch.take::<bf16>(rows * outputs).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * outputs]).unwrap();
        project_tiled_gated(step.on, &kernels, &mut out, matrices, x, (rows, Activation::GeluTanh)).unwrap();
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
        let gated = |(gate, up): (&f64, &f64)| gelu(*gate) * up;
        let expected: Vec<f64> = parts[0].iter().flatten().zip(parts[1].iter().flatten()).map(gated).collect();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 8e-3, "{case}: gated {far}");
    }
}

#[test]
fn inputs_are_normalised_on_the_way() {
    normed::<Q8_0>(2e-5);
    normed::<Q4_1>(2e-5);
    normed::<Q5_0>(2e-5);
    normed::<Q4_K>(6e-4);
    normed::<Q6_K>(6e-4);
}
