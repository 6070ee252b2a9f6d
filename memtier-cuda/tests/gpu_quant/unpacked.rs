//! Tiles as rows again.

use memtier::{Cuda, Engine, PackedFormat, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, Serving, Stream, bf16};
use memtier_cuda::{
    Kernels,
    kernels::{Inputs, Matrix, Tileable, TiledMatrix, embed_tiled, project_f32, project_tiled_f32, tile, unpack_tiled},
};

use crate::{
    blocks::{Random, matrix},
    read, rig, span,
    support::{Rig, Rng, Toy, distance, sized, wide},
};

/// Tiles as rows again: the whole matrix, and rows of it.
fn rows_again<B: Random>(within: f64) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(53);
    for (rows, blocks) in [(1, 1), (33, 3), (130, 5), (32, 2)] {
        let columns = blocks * B::PER;
        let (tiles, values) = matrix::<B>(&mut rng, rows, columns);
        let mut step = engine.step(&mut stream).unwrap();
        let span = span!(step, u8, tiles, 0xff);
        let matrix = TiledMatrix::new(span.read().range(0..tiles.len()).unwrap(), B::TILING, rows, columns).unwrap();
        // Nothing is written behind the last row.
        let mut out = step.scratch.take::<bf16>(rows * columns + 512).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * columns + 512]).unwrap();
        unpack_tiled(step.on, &kernels, &mut out.range(0..rows * columns).unwrap(), &[matrix]).unwrap();
        let found = read!(step, bf16, out);
        assert!(found[rows * columns..].iter().all(|x| x.is_nan()), "{} {rows} x {columns}", B::NAME);
        for (at, (found, expected)) in wide(&found).zip(&values).enumerate() {
            let far = (found - expected).abs();
            assert!(far <= expected.abs() / 250.0 + within, "{} {rows} x {columns}, {at}: {far}", B::NAME);
        }
        // The last one is not there.
        let tokens = [rows as u32 - 1, 0, rows as u32 / 2, rows as u32];
        let mut span = step.scratch.take::<u32>(4).unwrap();
        step.on.write(&mut span, &tokens).unwrap();
        let mut out = step.scratch.take::<f32>(4 * columns + 64).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; 4 * columns + 64]).unwrap();
        embed_tiled(step.on, &kernels, &mut out.range(0..4 * columns).unwrap(), matrix, span.read(), 0.5).unwrap();
        let found = read!(step, f32, out);
        assert!(found[4 * columns..].iter().all(|x| x.is_nan()), "{} {rows} x {columns}", B::NAME);
        let expected = tokens.iter().flat_map(|token| {
            let row = *token as usize * columns;
            (row..row + columns).map(|at| values.get(at).map_or(0.0, |value| value / 2.0))
        });
        for (at, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let far = (f64::from(found) - expected).abs();
            assert!(far <= expected.abs() * 1e-6 + within, "{} {rows} x {columns}, embedded {at}: {far}", B::NAME);
        }
    }
}

#[test]
fn tiles_unpacked_are_the_weights() {
    // Sums with an offset cancel; scales of super-blocks are rounded.
    rows_again::<Q8_0>(0.0);
    rows_again::<Q4_0>(1e-6);
    rows_again::<Q4_1>(1e-6);
    rows_again::<Q5_0>(0.0);
    rows_again::<Q4_K>(1e-4);
    rows_again::<Q6_K>(3e-4);
}

#[test]
fn rows_are_multiplied_with_what_was_just_unpacked() {
    let Some(Rig { backend, kernels, mut engine, mut stream, .. }) = rig() else { return };
    // By the kernels for few rows and, where work overlaps, by those for many.
    for rows in sized(&backend, &[4, 100][..], &[4]) {
        multiplied(&kernels, &mut engine, &mut stream, *rows);
    }
}

fn multiplied(kernels: &Kernels, engine: &mut Engine<Serving<Toy>>, stream: &mut Stream<Cuda>, rows: usize) {
    let (mut rng, (outputs, columns)) = (Rng(59), (1040, 2080));
    let tiles = [(); 2].map(|()| {
        let blocks: Vec<Q8_0> = (0..outputs * columns / 32).map(|_| Q8_0::random(&mut rng)).collect();
        let mut tiles = vec![0; Q8_0::TILING.bytes(&[outputs, columns]).unwrap().count() as usize];
        tile(&blocks, outputs, columns, &mut tiles).unwrap();
        tiles
    });
    let x = rng.bf16s(rows * columns);
    let mut step = engine.step(stream).unwrap();
    let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
    step.on.write(&mut inputs, &x).unwrap();
    let mut spans = [(); 2].map(|()| step.scratch.take::<u8>(tiles[0].len()).unwrap());
    spans.iter_mut().zip(&tiles).for_each(|(span, tiles)| step.on.write(span, tiles).unwrap());
    let mut wide = step.scratch.take::<bf16>(outputs * columns).unwrap();
    let mut outs = [(); 8].map(|()| step.scratch.take::<f32>(rows * outputs).unwrap());
    // In turns, so that a product which reads too early finds the other matrix.
    for (turn, out) in outs.iter_mut().enumerate() {
        let matrix = TiledMatrix::new(spans[turn % 2].read(), Q8_0::TILING, outputs, columns).unwrap();
        unpack_tiled(step.on, kernels, &mut wide, &[matrix]).unwrap();
        let matrix = Matrix::new(wide.read(), outputs, columns).unwrap();
        project_f32(step.on, kernels, out, &[matrix], Inputs::Plain(inputs.read()), rows).unwrap();
    }
    let all: Vec<Vec<f32>> = outs.iter().map(|out| read!(step, f32, *out)).collect();
    assert!(all[0] != all[1], "two matrices gave the same");
    for (turn, out) in all.iter().enumerate() {
        assert!(*out == all[turn % 2], "product {turn} read what was there before");
    }
    // And the first ones are right: of the tiles themselves.
    for (span, out) in spans.iter().zip(&all) {
        let matrix = TiledMatrix::new(span.read(), Q8_0::TILING, outputs, columns).unwrap();
        let mut tiled = step.scratch.take::<f32>(rows * outputs).unwrap();
        project_tiled_f32(step.on, kernels, &mut tiled, &[matrix], Inputs::Plain(inputs.read()), rows).unwrap();
        let tiled = read!(step, f32, tiled);
        let expected: Vec<Vec<f64>> =
            tiled.chunks(outputs).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
        let far = distance(out.iter().map(|x| f64::from(*x)), &expected.concat());
        // Weights of Q8_0 as bf16.
        assert!(far < 5e-3, "{far}");
    }
}
