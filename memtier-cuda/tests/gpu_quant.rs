//! Projections with weights of 4 to 8 bits against f64 on the CPU, from the blocks of a model file.

mod support;

use memtier::{Bytes, F8E4M3, PackedFormat, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0, TableSpec, bf16, f16};
use memtier_cuda::kernels::{
    Activation, Inputs, Matrix, Tileable, TiledMatrix, Tiling, embed_tiled, project_f32, project_tiled,
    project_tiled_add, project_tiled_f32, project_tiled_gated, tile, tile_fp8, unpack_tiled,
};
use support::{Rig, Rng, distance, pool, rounds, wide};

/// Reads a span back.
macro_rules! read {
    ($step:ident, $element:ty, $span:expr) => {{
        let mut found = vec![<$element>::default(); $span.len()];
        $step.on.read::<$element>(&$span, &mut found).unwrap();
        found
    }};
}

/// A block whose scale is a small f16 (and whose offset is another), the other bytes at random.
trait Random: Tileable + Sized {
    fn random(rng: &mut Rng) -> Self;
    /// Its weights, each for itself, as ggml's own code unpacks them.
    fn values(&self) -> Vec<f64>;
}

fn half(bytes: &[u8]) -> f64 {
    f64::from(f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
}

/// Random bytes, with f16 of about 0.01 to 0.02 at these places; in super-blocks, which multiply them once more, 0.0001.
fn bytes<const N: usize>(rng: &mut Rng, scales: &[usize]) -> [u8; N] {
    let mut bytes = std::array::from_fn(|_| rng.next() as u8);
    let size = if N > 100 { 1e-4 } else { 1e-2 };
    for at in scales {
        let scale = f16::from_f32(size * (1.0 + rng.below(1000) as f32 * 1e-3));
        bytes[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
    }
    bytes
}

fn nibble(bytes: &[u8], at: usize) -> u8 {
    bytes[at % 16] >> (at / 16 * 4) & 15
}

impl Random for Q8_0 {
    fn random(rng: &mut Rng) -> Self {
        Q8_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        self.0[2..].iter().map(|byte| half(&self.0) * f64::from(byte.cast_signed())).collect()
    }
}
impl Random for Q4_0 {
    fn random(rng: &mut Rng) -> Self {
        Q4_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        (0..32).map(|at| half(&self.0) * (f64::from(nibble(&self.0[2..], at)) - 8.0)).collect()
    }
}
impl Random for Q4_1 {
    fn random(rng: &mut Rng) -> Self {
        Q4_1(bytes(rng, &[0, 2]))
    }
    fn values(&self) -> Vec<f64> {
        let offset = half(&self.0[2..]);
        (0..32).map(|at| half(&self.0) * f64::from(nibble(&self.0[4..], at)) + offset).collect()
    }
}
impl Random for Q5_0 {
    fn random(rng: &mut Rng) -> Self {
        Q5_0(bytes(rng, &[0]))
    }
    fn values(&self) -> Vec<f64> {
        let fifth = |at: usize| self.0[2 + at / 8] >> (at % 8) & 1;
        (0..32).map(|at| half(&self.0) * (f64::from(nibble(&self.0[6..], at) | fifth(at) << 4) - 16.0)).collect()
    }
}
impl Random for Q4_K {
    fn random(rng: &mut Rng) -> Self {
        Q4_K(bytes(rng, &[0, 2]))
    }
    fn values(&self) -> Vec<f64> {
        let six = &self.0[4..16];
        let of = |j: usize| match j < 4 {
            true => (six[j] & 63, six[j + 4] & 63),
            false => (six[j + 4] & 15 | six[j - 4] >> 6 << 4, six[j + 4] >> 4 | six[j] >> 6 << 4),
        };
        let value = |at: usize| {
            let (scale, offset) = of(at / 32);
            let four = self.0[16 + at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15;
            half(&self.0) * f64::from(scale) * f64::from(four) - half(&self.0[2..]) * f64::from(offset)
        };
        (0..256).map(value).collect()
    }
}
impl Random for Q6_K {
    fn random(rng: &mut Rng) -> Self {
        Q6_K(bytes(rng, &[208]))
    }
    fn values(&self) -> Vec<f64> {
        let value = |at: usize| {
            let (part, l, quarter) = (at / 128, at % 32, at % 128 / 32);
            let low = self.0[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
            let high = self.0[128 + part * 32 + l] >> (quarter * 2) & 3;
            let scale = self.0[192 + part * 8 + l / 16 + quarter * 2].cast_signed();
            half(&self.0[208..]) * f64::from(scale) * (f64::from(low | high << 4) - 32.0)
        };
        (0..256).map(value).collect()
    }
}

/// Sums of rows of `x` with rows of weights: rows x outputs.
fn products(x: &[f64], weights: &[f64], columns: usize) -> Vec<Vec<f64>> {
    let row = |x: &[f64]| weights.chunks(columns).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
    x.chunks(columns).map(row).collect()
}

/// A matrix of random blocks: its tiles and its values.
fn matrix<B: Random>(rng: &mut Rng, rows: usize, columns: usize) -> (Vec<u8>, Vec<f64>) {
    let blocks: Vec<B> = (0..rows * columns / B::PER).map(|_| B::random(rng)).collect();
    let mut tiles = vec![0; B::TILING.bytes(&[rows, columns]).unwrap().count() as usize];
    tile(&blocks, rows, columns, &mut tiles).unwrap();
    (tiles, blocks.iter().flat_map(Random::values).collect())
}

/// Every shape of one kind of block; `within` is how far sums may be.
fn every_shape<B: Random>(within: f64) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(51);
    let mut worst = 0.0f64;
    for (rows, blocks, outputs) in [
        (1, 1, vec![1]),
        (1, 3, vec![70, 16]),
        (8, 5, vec![33]),
        (9, 2, vec![17, 64, 5]),
        (16, 9, vec![130]),
        (37, 4, vec![50]),
    ] {
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
        let mut span = step.scratch.take::<bf16>(x.len()).unwrap();
        step.on.write(&mut span, &x).unwrap();
        let x = span;
        let mut spans = Vec::new();
        for (tiles, _) in &made {
            let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
            step.on.write(&mut span, tiles).unwrap();
            spans.push(span);
        }
        let matrices: Vec<_> = spans
            .iter()
            .zip(&outputs)
            .map(|(span, outputs)| TiledMatrix::new(span.read(), B::TILING, *outputs, columns).unwrap())
            .collect();
        let case = format!("{} {rows} x {columns} to {outputs:?}", B::NAME);

        let mut out = step.scratch.take::<f32>(rows * all).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * all]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &matrices, x.read(), rows).unwrap();
        let first = read!(step, f32, out);
        let far = distance(first.iter().map(|x| f64::from(*x)), &expected);
        assert!(far < within, "{case}: {far}");
        worst = worst.max(far);
        project_tiled_f32(step.on, &kernels, &mut out, &matrices, x.read(), rows).unwrap();
        assert!(read!(step, f32, out) == first, "{case}: the same inputs gave other bits");

        let mut out = step.scratch.take::<bf16>(rows * all).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * all]).unwrap();
        project_tiled(step.on, &kernels, &mut out, &matrices, x.read(), rows).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 4.2e-3, "{case}: bf16 {far}");

        let before = rng.f32s(rows * outputs[0]);
        let mut out = step.scratch.take::<f32>(before.len()).unwrap();
        step.on.write(&mut out, &before).unwrap();
        project_tiled_add(step.on, &kernels, &mut out, matrices[0], x.read(), rows).unwrap();
        let sum: Vec<f64> = parts[0].iter().flatten().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &sum);
        assert!(far < within, "{case}: add {far}");

        let (other, values) = matrix::<B>(&mut rng, outputs[0], columns);
        let mut span = step.scratch.take::<u8>(other.len()).unwrap();
        step.on.write(&mut span, &other).unwrap();
        let pair = [matrices[0], TiledMatrix::new(span.read(), B::TILING, outputs[0], columns).unwrap()];
        let mut out = step.scratch.take::<bf16>(rows * outputs[0]).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * outputs[0]]).unwrap();
        project_tiled_gated(step.on, &kernels, &mut out, pair, x.read(), (rows, Activation::Silu)).unwrap();
        let up = products(&x64, &values, columns);
        let gated = |(gate, up): (&f64, &f64)| gate / (1.0 + (-gate).exp()) * up;
        let expected: Vec<f64> = parts[0].iter().flatten().zip(up.iter().flatten()).map(gated).collect();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 8e-3, "{case}: gated {far}");
    }
    println!("{}: {worst:.2e}", B::NAME);
}

/// Inputs that are normalised on the way, into matrices side by side and gated ones.
fn normed<B: Random>(within: f64) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(56);
    for (rows, blocks, outputs) in [(1, 1, 17), (3, 5, 40), (8, 3, 2100)] {
        let columns = blocks * B::PER;
        let (x, weight) = (rng.f32s(rows * columns), rng.f32s(columns));
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

/// Tiles as rows again: the whole matrix, and rows of it.
fn rows_again<B: Random>(within: f64) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(53);
    for (rows, blocks) in [(1, 1), (33, 3), (130, 5)] {
        let columns = blocks * B::PER;
        let (tiles, values) = matrix::<B>(&mut rng, rows, columns);
        let mut step = engine.step(&mut stream).unwrap();
        let mut span = step.scratch.take::<u8>(tiles.len()).unwrap();
        step.on.write(&mut span, &tiles).unwrap();
        let matrix = TiledMatrix::new(span.read(), B::TILING, rows, columns).unwrap();
        let mut out = step.scratch.take::<bf16>(rows * columns).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * columns]).unwrap();
        unpack_tiled(step.on, &kernels, &mut out, &[matrix]).unwrap();
        for (at, (found, expected)) in wide(&read!(step, bf16, out)).zip(&values).enumerate() {
            let far = (found - expected).abs();
            assert!(far <= expected.abs() / 250.0 + within, "{} {rows} x {columns}, {at}: {far}", B::NAME);
        }
        // The last one is not there.
        let tokens = [rows as u32 - 1, 0, rows as u32 / 2, rows as u32];
        let mut span = step.scratch.take::<u32>(4).unwrap();
        step.on.write(&mut span, &tokens).unwrap();
        let mut out = step.scratch.take::<f32>(4 * columns).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; 4 * columns]).unwrap();
        embed_tiled(step.on, &kernels, &mut out, matrix, span.read(), 0.5).unwrap();
        let expected = tokens.iter().flat_map(|token| {
            let row = *token as usize * columns;
            (row..row + columns).map(|at| values.get(at).map_or(0.0, |value| value / 2.0))
        });
        for (at, (found, expected)) in read!(step, f32, out).into_iter().zip(expected).enumerate() {
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
    for order in [[0, 1, 2], [2, 0, 1], [0, 2, 1]] {
        let matrices = order.map(|at| {
            let (tiling, outputs, _) = made[at];
            TiledMatrix::new(spans[at].read(), tiling, outputs, columns).unwrap()
        });
        let parts = order.map(|at| products(&x64, &made[at].2.1, columns));
        let expected: Vec<f64> =
            (0..rows).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect();
        let mut out = step.scratch.take::<bf16>(rows * 121).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; rows * 121]).unwrap();
        project_tiled(step.on, &kernels, &mut out, &matrices, inputs.read(), rows).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &expected);
        assert!(far < 4.2e-3, "{order:?}: bf16 {far}");
        let mut out = step.scratch.take::<f32>(rows * 121).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * 121]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &matrices, inputs.read(), rows).unwrap();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < 6e-4, "{order:?}: f32 {far}");
        let all: Vec<f64> = order.iter().flat_map(|at| made[*at].2.1.iter().copied()).collect();
        let mut out = step.scratch.take::<bf16>(all.len()).unwrap();
        step.on.write(&mut out, &vec![bf16::NAN; all.len()]).unwrap();
        unpack_tiled(step.on, &kernels, &mut out, &matrices).unwrap();
        let far = distance(wide(&read!(step, bf16, out)), &all);
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

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(64), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

#[test]
fn blocks_of_32_of_every_kind() {
    every_shape::<Q8_0>(2e-5);
    every_shape::<Q4_0>(2e-5);
    every_shape::<Q4_1>(2e-5);
    every_shape::<Q5_0>(2e-5);
}

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
        let matrix = TiledMatrix::new(span.read(), Tiling::F8, outputs, columns).unwrap();
        let mut out = step.scratch.take::<f32>(rows * outputs).unwrap();
        step.on.write(&mut out, &vec![f32::NAN; rows * outputs]).unwrap();
        project_tiled_f32(step.on, &kernels, &mut out, &[matrix], inputs.read(), rows).unwrap();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &expected);
        assert!(far < 2e-5, "{rows} x {columns} to {outputs}: {far}");
    }
}

#[test]
fn super_blocks_whose_scales_are_rounded() {
    every_shape::<Q4_K>(6e-4);
    every_shape::<Q6_K>(6e-4);
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

/// Matrices of which every multiprocessor has `share` strips of 16 outputs, twice side by side, or as a gate and what it gates.
fn large<B: Random>(within: f64, shares: &[usize]) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(57);
    let (columns, most) = (2304, 11);
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
        let matrix = TiledMatrix::new(span.read(), B::TILING, outputs, columns).unwrap();
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
    large::<Q4_0>(2e-5, shares);
    large::<Q8_0>(2e-5, shares);
    large::<Q5_0>(2e-5, shares);
    large::<Q6_K>(6e-4, shares);
    large::<Q4_1>(2e-5, &[2]);
    large::<Q4_K>(6e-4, &[2]);
}

#[test]
fn few_rows_are_multiplied_with_what_was_just_unpacked() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let (mut rng, (outputs, columns)) = (Rng(59), (1040, 2080));
    let tiles = [(); 2].map(|()| {
        let blocks: Vec<Q8_0> = (0..outputs * columns / 32).map(|_| Q8_0::random(&mut rng)).collect();
        let mut tiles = vec![0; Q8_0::TILING.bytes(&[outputs, columns]).unwrap().count() as usize];
        tile(&blocks, outputs, columns, &mut tiles).unwrap();
        tiles
    });
    let x = rng.bf16s(4 * columns);
    let mut step = engine.step(&mut stream).unwrap();
    let mut inputs = step.scratch.take::<bf16>(x.len()).unwrap();
    step.on.write(&mut inputs, &x).unwrap();
    let mut spans = [(); 2].map(|()| step.scratch.take::<u8>(tiles[0].len()).unwrap());
    spans.iter_mut().zip(&tiles).for_each(|(span, tiles)| step.on.write(span, tiles).unwrap());
    let mut wide = step.scratch.take::<bf16>(outputs * columns).unwrap();
    let mut outs = [(); 8].map(|()| step.scratch.take::<f32>(4 * outputs).unwrap());
    // In turns, so that a product which reads too early finds the other matrix.
    for (turn, out) in outs.iter_mut().enumerate() {
        let matrix = TiledMatrix::new(spans[turn % 2].read(), Q8_0::TILING, outputs, columns).unwrap();
        unpack_tiled(step.on, &kernels, &mut wide, &[matrix]).unwrap();
        let matrix = Matrix::new(wide.read(), outputs, columns).unwrap();
        project_f32(step.on, &kernels, out, &[matrix], Inputs::Plain(inputs.read()), 4).unwrap();
    }
    let all: Vec<Vec<f32>> = outs.iter().map(|out| read!(step, f32, *out)).collect();
    assert!(all[0] != all[1], "two matrices gave the same");
    for (turn, out) in all.iter().enumerate() {
        assert!(*out == all[turn % 2], "product {turn} read what was there before");
    }
    // And the first ones are right: of the tiles themselves.
    for (span, out) in spans.iter().zip(&all) {
        let matrix = TiledMatrix::new(span.read(), Q8_0::TILING, outputs, columns).unwrap();
        let mut tiled = step.scratch.take::<f32>(4 * outputs).unwrap();
        project_tiled_f32(step.on, &kernels, &mut tiled, &[matrix], Inputs::Plain(inputs.read()), 4).unwrap();
        let tiled = read!(step, f32, tiled);
        let expected: Vec<Vec<f64>> =
            tiled.chunks(outputs).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
        let far = distance(out.iter().map(|x| f64::from(*x)), &expected.concat());
        // Weights of Q8_0 as bf16.
        assert!(far < 5e-3, "{far}");
    }
}
