//! Matrices that are large for the device, and e4m3.

use memtier::{F8E4M3, PackedFormat, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, bf16};
use memtier_cuda::kernels::{
    Activation, Inputs, TiledMatrix, Tiling, project_tiled, project_tiled_add, project_tiled_f32, project_tiled_gated,
    tile, tile_fp8,
};

use crate::{
    activated,
    blocks::{Random, matrix},
    products, read, read_whole, rig, span,
    support::{Rig, Rng, distance, rounds, wide},
};

#[test]
fn e4m3_with_a_scale_for_every_row_or_part_of_one() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(52);
    // The last two: large for the device, of one row and of many.
    let (pairs, fours) = (kernels.multiprocessors() as usize * 32 - 5, kernels.multiprocessors() as usize * 64 - 5);
    let shapes = [(1, 64, 5, 64), (8, 256, 70, 128), (16, 96, 33, 32), (20, 512, 4100, 512)];
    for (rows, columns, outputs, per) in shapes.into_iter().chain([(3, 2080, pairs, 2080), (9, 2080, fours, 32)]) {
        let x = rng.bf16s(rows * columns);
        // Every number that there is, also those below normal ones.
        let bits = |rng: &mut Rng| match rng.next() as u8 {
            nan if nan & 0x7f == 0x7f => F8E4M3(1),
            bits => F8E4M3(bits),
        };
        let weights: Vec<_> = (0..outputs * columns).map(|_| bits(&mut rng)).collect();
        // Scales that f16 has.
        let scales: Vec<_> = (0..outputs * columns / per).map(|_| 2f32.powi(rng.below(20) as i32 - 16)).collect();
        let value = |at: usize| {
            let (bits, scale) = (weights[at].0, f64::from(scales[at / per]));
            let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
            let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
            scale * if bits & 0x80 != 0 { -size } else { size }
        };
        let values: Vec<f64> = (0..weights.len()).map(value).collect();
        let expected = products(&wide(&x).collect::<Vec<_>>(), &values, columns).concat();
        let mut tiles = vec![0; Tiling::F8.bytes(&[outputs, columns]).unwrap().count() as usize];
        tile_fp8(&weights, &scales, (outputs, columns, per), &mut tiles).unwrap();
        let mut step = engine.step(&mut stream).unwrap();
        let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
        let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
        step.on.write(&mut inputs, &x).unwrap();
        step.on.write(&mut span, &tiles).unwrap();
        let matrix = TiledMatrix::new(span.read(), Tiling::F8, outputs, columns).unwrap().at_rest();
        let mut out = step.scratch.take::<f32>(rows * outputs).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * outputs]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &[matrix], inputs.read(), rows).unwrap();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < 2e-5, "{rows} x {columns} to {outputs}: {far}");
    }
}

/// Matrices of which every multiprocessor has `share` strips of 16 outputs, twice side by side, or as a gate and what it gates.
fn large<B: Random>(within: f64, columns: usize, shares: &[usize]) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(57);
    let most = 11;
    let x = rng.bf16s(most * columns);
    let x64: Vec<f64> = wide(&x).collect();
    let mut worst = 0.0f64;
    for share in shares {
        let outputs = kernels.multiprocessors() as usize * 16 * share - 21;
        let across = columns / B::PER;
        let blocks: Vec<B> = (0..outputs * across).map(|_| B::random(&mut rng)).collect();
        let mut tiles = vec![0; B::TILING.bytes(&[outputs, columns]).unwrap().count() as usize];
        tile(&blocks, outputs, columns, &mut tiles).unwrap();
        let samples: Vec<usize> = (0..outputs).step_by((outputs / 50) | 1).chain([outputs - 1]).collect();
        let values: Vec<f64> = samples
            .iter()
            .flat_map(|output| blocks[output * across..(output + 1) * across].iter().flat_map(Random::values))
            .collect();
        let expected = products(&x64, &values, columns);
        let mut step = engine.step(&mut stream).unwrap();
        let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
        let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
        step.on.write(&mut inputs, &x).unwrap();
        step.on.write(&mut span, &tiles).unwrap();
        let matrix = TiledMatrix::new(span.read(), B::TILING, outputs, columns).unwrap().at_rest();
        let mut of = Vec::new();
        for rows in [1, 8, 9, most] {
            let case = format!("{} {rows} x {columns} to 2 x {outputs}", B::NAME);
            let x = inputs.read().range(0..rows * columns).unwrap();
            let mut out = step.scratch.take::<f32>(rows * 2 * outputs).unwrap();
            step.on.write(&mut out, &vec![f32::NAN; rows * 2 * outputs]).unwrap();
            project_tiled_f32(step.on, &kernels, &mut out, &[matrix, matrix], Inputs::Plain(x), rows).unwrap();
            let found = read!(step, f32, out);
            for half in 0..2 {
                let sampled = (0..rows).flat_map(|row| {
                    let at = (2 * row + half) * outputs;
                    samples.iter().map(move |output| at + output)
                });
                let sampled = sampled.map(|at| f64::from(found[at]));
                let far = distance(sampled, &expected[..rows].concat());
                assert!(far < within, "{case}: {far}");
                worst = worst.max(far);
            }
            if rows == most {
                step.on.write(&mut out, &vec![f32::NAN; rows * 2 * outputs]).unwrap();
                project_tiled_f32(step.on, &kernels, &mut out, &[matrix, matrix], Inputs::Plain(x), rows).unwrap();
                assert!(read!(step, f32, out) == found, "{case}: the same inputs gave other bits");
            }
            of.push(found);
            if rows != 8 && rows != most {
                continue;
            }
            let mut out = step.scratch.take::<bf16>(rows * outputs).unwrap();
            step.on.write(&mut out, &vec![bf16::NAN; rows * outputs]).unwrap();
            let activation = (rows, Activation::Silu);
            project_tiled_gated(step.on, &kernels, &mut out, [matrix, matrix], Inputs::Plain(x), activation).unwrap();
            let found = read!(step, bf16, out);
            let sampled = (0..rows).flat_map(|row| samples.iter().map(move |output| row * outputs + output));
            let sampled = sampled.map(|at| f64::from(found[at].to_f32()));
            let gated = |sum: &f64| sum / (1.0 + (-sum).exp()) * sum;
            let expected: Vec<f64> = expected[..rows].iter().flatten().map(gated).collect();
            let far = distance(sampled, &expected);
            assert!(far < 8e-3, "{case}: gated {far}");
        }
        // A row has the same bits beside any others, up to 8 of them, and from 9 on.
        assert!(of[1].starts_with(&of[0]) && of[3].starts_with(&of[2]), "{}: rows depend on each other", B::NAME);
    }
    println!("{}, large: {worst:.2e}", B::NAME);
}

#[test]
fn large_matrices_of_every_kind() {
    // Six strips of both matrices are those of the kernels for many.
    let shares = if rounds(1, 0) == 1 { &[1, 2, 3, 4][..] } else { &[1, 2, 4] };
    large::<Q4_0>(2e-5, 2304, shares);
    large::<Q8_0>(2e-5, 2304, shares);
    large::<Q5_0>(2e-5, 2304, shares);
    large::<Q6_K>(6e-4, 2304, shares);
    large::<Q4_K>(6e-4, 2304, &[2]);
    // Of 4 bits it matters whether a row ends between two tiles; those of many elements are shared by two blocks.
    large::<Q4_1>(2e-5, 2336, shares);
    large::<Q4_1>(2e-5, 8576, &[1]);
}

/// Three matrices side by side, as queries, keys and values are, and a gate by GELU: small for a device, but not for the emulated one.
fn three_and_a_gate<B: Random>(within: f64, columns: usize, outputs: [usize; 3]) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(58);
    let made = outputs.map(|outputs| matrix::<B>(&mut rng, outputs, columns));
    let up = matrix::<B>(&mut rng, outputs[2], columns);
    let mut step = engine.step(&mut stream).unwrap();
    let mut matrix_of = |tiles: &[u8], outputs: usize| {
        let span = span!(step, u8, tiles, 0xff).into_read();
        TiledMatrix::new(span.range(0..tiles.len()).unwrap(), B::TILING, outputs, columns).unwrap().at_rest()
    };
    let matrices = [0, 1, 2].map(|at: usize| matrix_of(&made[at].0, outputs[at]));
    let pair = [matrices[2], matrix_of(&up.0, outputs[2])];
    for rows in [3, 11, 16] {
        let x = rng.bf16s(rows * columns);
        let x64: Vec<f64> = wide(&x).collect();
        let span = span!(step, bf16, x, bf16::NAN);
        let inputs = span.read().range(0..x.len()).unwrap();
        let parts = made.each_ref().map(|(_, values)| products(&x64, values, columns));
        let all: usize = outputs.iter().sum();
        let mut out = span!(step, f32, vec![f32::NAN; rows * all], f32::NAN);
        project_tiled_f32(step.on, &kernels, &mut out.range(0..rows * all).unwrap(), &matrices, inputs, rows).unwrap();
        let expected: Vec<f64> =
            (0..rows).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect();
        let far = distance(read_whole!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < within, "{} {rows} x {columns} to {outputs:?}: {far}", B::NAME);
        let mut out = span!(step, bf16, vec![bf16::NAN; rows * all], bf16::NAN);
        project_tiled(step.on, &kernels, &mut out.range(0..rows * all).unwrap(), &matrices, inputs, rows).unwrap();
        let far = distance(wide(&read_whole!(step, bf16, out)), &expected);
        assert!(far < 4.2e-3, "{} {rows} x {columns}: bf16 {far}", B::NAME);
        let before = rng.f32s(rows * outputs[2]);
        let mut out = span!(step, f32, before, f32::NAN);
        let of = &mut out.range(0..before.len()).unwrap();
        project_tiled_add(step.on, &kernels, of, matrices[2], inputs, rows).unwrap();
        let sums: Vec<f64> = parts[2].iter().flatten().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
        let far = distance(read_whole!(step, f32, out).iter().map(|x| f64::from(*x)), &sums);
        assert!(far < within, "{} {rows} x {columns}: add {far}", B::NAME);
        let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs[2]], bf16::NAN);
        let (gelu, of) = (Activation::GeluTanh, &mut out.range(0..rows * outputs[2]).unwrap());
        project_tiled_gated(step.on, &kernels, of, pair, inputs, (rows, gelu)).unwrap();
        let ups = products(&x64, &up.1, columns);
        let gates = parts[2].iter().flatten().map(|gate| activated(gelu, *gate));
        let expected: Vec<f64> = gates.zip(ups.iter().flatten()).map(|(gate, up)| gate * up).collect();
        let far = distance(wide(&read_whole!(step, bf16, out)), &expected);
        assert!(far < 8e-3, "{} {rows} x {columns}: gated {far}", B::NAME);
    }
}

#[test]
fn large_matrices_three_at_a_time_and_gated_by_gelu() {
    // Outputs that end in the middle of a tile; and so do rows, or not.
    three_and_a_gate::<Q4_0>(2e-5, 2080, [49, 33, 70]);
    three_and_a_gate::<Q4_0>(2e-5, 2176, [49, 33, 70]);
    // Long rows of few outputs, which two blocks share.
    three_and_a_gate::<Q4_0>(2e-5, 8320, [17, 14, 90]);
    three_and_a_gate::<Q5_0>(2e-5, 2080, [49, 33, 70]);
    three_and_a_gate::<Q8_0>(2e-5, 2080, [49, 33, 70]);
}
