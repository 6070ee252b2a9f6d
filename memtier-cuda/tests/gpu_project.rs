//! Projections, and the two ends of a forward pass, against f64 on the CPU.

mod support;

use memtier::{Bytes, LaunchError, TableSpec, bf16};
use memtier_cuda::kernels::{
    Activation, Inputs, KERNELS_OF_MANY_ROWS, Matrix, add_rms_norm, begin_pass, embed, gather_rows, project,
    project_add, project_f32, project_gated, rms_norm_wide, rope_angles_of, softcap,
};
use support::{Rig, Rng, distance, pool, rounds, wide};

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(256), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

/// A span of these values in the step's scratch.
macro_rules! span {
    ($step:ident, $element:ty, $values:expr) => {{
        let values = &$values;
        let mut span = $step.scratch.take::<$element>(values.len()).unwrap();
        $step.on.write(&mut span, values).unwrap();
        span
    }};
}

/// Reads a span back.
macro_rules! read {
    ($step:ident, $element:ty, $span:expr) => {{
        let mut found = vec![<$element>::default(); $span.len()];
        $step.on.read::<$element>(&$span, &mut found).unwrap();
        found
    }};
}

/// `rows` x outputs of one matrix in f64.
fn products(x: &[f64], weights: &[bf16], columns: usize) -> Vec<Vec<f64>> {
    let weights: Vec<f64> = wide(weights).collect();
    let row = |x: &[f64]| weights.chunks(columns).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
    x.chunks(columns).map(row).collect()
}

/// Row by row, the outputs of several matrices side by side.
fn beside(parts: &[Vec<Vec<f64>>]) -> Vec<f64> {
    (0..parts[0].len()).flat_map(|row| parts.iter().flat_map(move |part| part[row].clone())).collect()
}

fn normed(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let row = |row: &[f32]| -> Vec<f64> {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
        row.iter().zip(weight).map(|(x, w)| f64::from(*x) * scale * f64::from(*w)).collect()
    };
    x.chunks(weight.len()).flat_map(row).collect()
}

/// How far correctly rounded bf16 may be where there are few of them.
const BOUND: f64 = 4.2e-3;
/// How far sums of f32 may be. The tensor cores cut what they add: over 30,000 products that was seen to be 2.9e-5.
const SUM: f64 = 1e-4;

/// Rows, columns and the outputs of every matrix: each kernel, and sizes that fill none of its tiles.
fn shapes(rng: &mut Rng) -> Vec<(usize, usize, Vec<usize>)> {
    let mut shapes = vec![
        (1, 8, vec![1]),
        (1, 576, vec![576, 192, 192]),
        (3, 64, vec![5, 70]),
        (4, 1536, vec![576]),
        (1, 30_000, vec![9]),
        (2, 9_000, vec![33]),
        (1, 2080, vec![8200]),
        (16, 2056, vec![6160, 7]),
        (11, 2056, vec![12_300]),
        (40, 2056, vec![130]),
        (5, 576, vec![65, 64, 1]),
        (64, 1536, vec![576]),
        (60, 576, vec![2100, 7]),
        (50, 64, vec![16_400]),
        (3, 72, vec![16_390, 3]),
        (12, 136, vec![16_400]),
        (700, 136, vec![4000, 30]),
        (130, 200, vec![96, 31]),
        (300, 72, vec![200, 40, 130]),
        (1281, 2048, vec![1, 1, 1]),
    ];
    let most = rounds(usize::MAX, 100_000_000);
    shapes.retain(|(rows, columns, outputs)| rows * columns * outputs.iter().sum::<usize>() <= most);
    for _ in 0..rounds(16, 4) {
        let rows = rng.pick(&[1, 7, 8, 9, 16, 17, 33, 64, 65, 129]);
        let outputs = (0..=rng.below(3)).map(|_| 1 + rng.below(300)).collect();
        shapes.push((rows, 8 + rng.below(3000) / 8 * 8, outputs));
    }
    shapes
}

#[test]
fn projections_of_few_and_of_many_rows() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(41);
    let mut worst = [0.0f64; 2];
    for (rows, columns, outputs) in shapes(&mut rng) {
        let x = rng.bf16s(rows * columns);
        let weights: Vec<_> = outputs.iter().map(|outputs| rng.bf16s(outputs * columns)).collect();
        let all: usize = outputs.iter().sum();
        let x64: Vec<f64> = wide(&x).collect();
        let parts: Vec<_> = weights.iter().map(|weights| products(&x64, weights, columns)).collect();
        let expected = beside(&parts);
        let mut step = engine.step(&mut stream).unwrap();
        let x = span!(step, bf16, x);
        let spans: Vec<_> = weights.iter().map(|weights| span!(step, bf16, weights[..])).collect();
        let matrices: Vec<_> =
            spans.iter().zip(&outputs).map(|(span, rows)| Matrix::new(span.read(), *rows, columns).unwrap()).collect();
        for kernels in [kernels.clone(), kernels.clone().batch_invariant(true)] {
            let invariant = kernels.is_batch_invariant();
            let case = format!("{rows} x {columns} to {outputs:?}, batch-invariant: {invariant}");
            let mut out = span!(step, bf16, vec![bf16::NAN; rows * all]);
            project(step.on, &kernels, &mut out, &matrices, Inputs::Plain(x.read()), rows).unwrap();
            let far = distance(wide(&read!(step, bf16, out)), &expected);
            assert!(far < BOUND, "{case}: bf16 {far}");
            worst[0] = worst[0].max(far);

            let mut out = span!(step, f32, vec![f32::NAN; rows * all]);
            project_f32(step.on, &kernels, &mut out, &matrices, Inputs::Plain(x.read()), rows).unwrap();
            let first = read!(step, f32, out);
            let far = distance(first.iter().map(|x| f64::from(*x)), &expected);
            assert!(far < SUM, "{case}: f32 {far}");
            worst[1] = worst[1].max(far);
            project_f32(step.on, &kernels, &mut out, &matrices, Inputs::Plain(x.read()), rows).unwrap();
            assert!(read!(step, f32, out) == first, "{case}: the same inputs gave other bits");

            let before = rng.f32s(rows * outputs[0]);
            let mut out = span!(step, f32, before);
            project_add(step.on, &kernels, &mut out, matrices[0], Inputs::Plain(x.read()), rows).unwrap();
            let sum: Vec<f64> = beside(&parts[..1]).iter().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
            let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &sum);
            assert!(far < SUM, "{case}: add {far}");
        }
    }
    println!("worst: bf16 {:.2e}, f32 {:.2e}", worst[0], worst[1]);
}

/// The rows of `most` that are compared: from which one, how many.
const PARTS: [(usize, usize); 12] =
    [(0, 1), (3, 1), (12, 1), (199, 1), (0, 8), (5, 9), (100, 16), (7, 33), (0, 64), (31, 65), (0, 128), (2, 5)];

#[test]
fn in_the_batch_invariant_mode_a_row_has_the_same_bits_beside_any_others() {
    let shapes = [(576, 200, 200), (1536, 64, 200), (4096, 130, 200), (72, 16_390, 21)];
    // The last ones are enough outputs for the kernels of many rows: pieces of 128 elements in order, and through rings.
    let many = [(576, 1000, 200), (1544, 1000, 200), (2056, 6200, 200)];
    same_bits(true, shapes.into_iter().chain(many.into_iter().take(rounds(3, 1))));
}

#[test]
fn by_default_a_row_has_the_same_bits_within_the_ranges_that_documents_promise() {
    let shapes = [(576, 200, 64), (136, 1100, 16), (72, 16_390, 16), (1536, 64, 8), (2056, 40, 8)];
    same_bits(false, shapes.into_iter().chain((rounds(1, 0) == 1).then_some((2056, 6200, 16))));
}

/// Elements, outputs and the most rows of each.
fn same_bits(invariant: bool, shapes: impl Iterator<Item = (usize, usize, usize)>) {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let kernels = kernels.batch_invariant(invariant);
    let mut rng = Rng(45);
    for (columns, outputs, most) in shapes {
        let (x, weights) = (rng.bf16s(most * columns), rng.bf16s(outputs * columns));
        let mut step = engine.step(&mut stream).unwrap();
        let (x, weights) = (span!(step, bf16, x), span!(step, bf16, weights));
        let matrix = Matrix::new(weights.read(), outputs, columns).unwrap();
        let mut of = |first: usize, rows: usize| {
            let mut out = span!(step, f32, vec![f32::NAN; rows * outputs]);
            let x = x.read().range(first * columns..(first + rows) * columns).unwrap();
            project_f32(step.on, &kernels, &mut out, &[matrix], Inputs::Plain(x), rows).unwrap();
            read!(step, f32, out)
        };
        let all = of(0, most);
        for (first, rows) in PARTS.into_iter().filter(|(first, rows)| first + rows <= most) {
            let part = of(first, rows);
            let bits = |x: &f32| x.to_bits();
            let same = part.iter().map(bits).eq(all[first * outputs..][..rows * outputs].iter().map(bits));
            assert!(same, "{rows} rows from {first} of {columns} to {outputs}: other bits than beside all");
        }
    }
}

#[test]
fn in_the_batch_invariant_mode_gated_and_added_rows_have_the_same_bits_too() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let kernels = kernels.batch_invariant(true);
    let mut rng = Rng(47);
    // The last ones go through rings.
    for (columns, outputs) in [(8, 70), (576, 96), (576, 1536), (2184, 33), (2056, 6144)]
        .into_iter()
        .filter(|shape| shape.1 != 1536 || rounds(1, 0) == 1)
    {
        let most = if outputs > 2000 { 30 } else { 150 };
        let (x, weights) = (rng.bf16s(most * columns), rng.bf16s(2 * outputs * columns));
        let before = rng.f32s(most * outputs);
        let mut step = engine.step(&mut stream).unwrap();
        let (x, weights) = (span!(step, bf16, x), span!(step, bf16, weights));
        let matrix = |index: usize| {
            let span = weights.read().range(index * outputs * columns..(index + 1) * outputs * columns).unwrap();
            Matrix::new(span, outputs, columns).unwrap()
        };
        let mut of = |first: usize, rows: usize| {
            let x = Inputs::Plain(x.read().range(first * columns..(first + rows) * columns).unwrap());
            let mut gated = span!(step, bf16, vec![bf16::NAN; rows * outputs]);
            let how = (rows, Activation::Silu);
            project_gated(step.on, &kernels, &mut gated, [matrix(0), matrix(1)], x, how).unwrap();
            let mut added = span!(step, f32, before[first * outputs..(first + rows) * outputs]);
            project_add(step.on, &kernels, &mut added, matrix(1), x, rows).unwrap();
            let gated: Vec<u32> = read!(step, bf16, gated).iter().map(|x| x.to_bits().into()).collect();
            let added: Vec<u32> = read!(step, f32, added).iter().map(|x| x.to_bits()).collect();
            [gated, added]
        };
        let all = of(0, most);
        let parts = [(0, 1), (3, 9), (149, 1), (70, 33), (0, 64), (20, 65), (2, 129)];
        for (first, rows) in parts.into_iter().filter(|(first, rows)| first + rows <= most) {
            for (part, all) in of(first, rows).iter().zip(&all) {
                let same = part[..] == all[first * outputs..(first + rows) * outputs];
                assert!(same, "{rows} rows from {first} of {columns}: other bits than beside all");
            }
        }
    }
}

#[test]
fn inputs_that_are_normalised_and_gated_on_the_way() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(42);
    for (rows, columns, outputs) in
        [(1, 576, 1536), (4, 640, 70), (2, 64, 33), (3, 2048, 8), (9, 576, 100), (64, 200, 37)]
    {
        // Rows of very different sizes.
        let (mut x, norm) = (rng.f32s(rows * columns), rng.f32s(columns));
        x.iter_mut().enumerate().for_each(|(at, x)| *x *= (at / columns + 1) as f32 * 3e-3);
        let weights = [rng.bf16s(outputs * columns), rng.bf16s(outputs * columns)];
        // What is multiplied is rounded to bf16, then divided.
        let inputs: Vec<f64> = rows_of(&x, columns)
            .flat_map(|(row, scale)| {
                let rounded = |(x, w): (&f32, &f32)| f64::from(bf16::from_f32(x * w).to_f32()) * scale;
                row.iter().zip(&norm).map(rounded).collect::<Vec<_>>()
            })
            .collect();
        let [gate, up] = weights.each_ref().map(|weights| beside(&[products(&inputs, weights, columns)]));
        let mut step = engine.step(&mut stream).unwrap();
        let (x, norm) = (span!(step, f32, x), span!(step, f32, norm));
        let spans = [span!(step, bf16, weights[0]), span!(step, bf16, weights[1])];
        let matrices = spans.each_ref().map(|span| Matrix::new(span.read(), outputs, columns).unwrap());
        let normed = Inputs::Normed { x: x.read(), weight: norm.read(), epsilon: 1e-5 };
        let mut out = span!(step, f32, vec![f32::NAN; rows * outputs]);
        project_f32(step.on, &kernels, &mut out, &matrices[..1], normed, rows).unwrap();
        let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &gate);
        assert!(far < 2e-5, "normed {rows} x {columns}: {far}");

        // Another rounding: of what is multiplied, not before it is divided.
        let mut alone = span!(step, bf16, vec![bf16::NAN; rows * columns]);
        rms_norm_wide(step.on, &kernels, &mut alone, &x, &norm, (rows, 1e-5)).unwrap();
        let mut again = span!(step, f32, vec![f32::NAN; rows * outputs]);
        project_f32(step.on, &kernels, &mut again, &matrices[..1], Inputs::Plain(alone.read()), rows).unwrap();
        let far = distance(read!(step, f32, again).iter().map(|x| f64::from(*x)), &gate);
        assert!(far < 4e-3, "norm, then {rows} x {columns}: {far}");

        for activation in [Activation::Silu, Activation::GeluTanh] {
            let expected: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| act(activation, *gate) * up).collect();
            let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs]);
            project_gated(step.on, &kernels, &mut out, matrices, normed, (rows, activation)).unwrap();
            let far = distance(wide(&read!(step, bf16, out)), &expected);
            assert!(far < 8e-3, "{activation:?} {rows} x {columns}: {far}");
        }
    }
}

/// Rows, and one over the root of the mean square of each.
fn rows_of(x: &[f32], columns: usize) -> impl Iterator<Item = (&[f32], f64)> {
    x.chunks(columns).map(move |row| {
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
        (row, 1.0 / (mean + 1e-5).sqrt())
    })
}

fn act(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
    }
}

#[test]
fn two_projections_that_gate_each_other() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(46);
    for (rows, columns, outputs) in
        [(1, 576, 1536), (2, 2056, 6200), (3, 2056, 50), (16, 72, 16_390), (16, 2056, 7000), (12, 2056, 12_300)]
            .into_iter()
            .chain([(40, 2056, 33), (65, 576, 65), (200, 136, 300)])
    {
        if rows * columns * outputs > rounds(usize::MAX, 50_000_000) {
            continue;
        }
        let x = rng.bf16s(rows * columns);
        let weights = [rng.bf16s(outputs * columns), rng.bf16s(outputs * columns)];
        let x64: Vec<f64> = wide(&x).collect();
        let [gate, up] = weights.each_ref().map(|weights| beside(&[products(&x64, weights, columns)]));
        let mut step = engine.step(&mut stream).unwrap();
        let x = span!(step, bf16, x);
        let spans = [span!(step, bf16, weights[0]), span!(step, bf16, weights[1])];
        let matrices = spans.each_ref().map(|span| Matrix::new(span.read(), outputs, columns).unwrap());
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let expected: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| act(activation, *gate) * up).collect();
            let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs]);
            project_gated(step.on, &kernels, &mut out, matrices, Inputs::Plain(x.read()), (rows, activation)).unwrap();
            let far = distance(wide(&read!(step, bf16, out)), &expected);
            assert!(far < 8e-3, "{activation:?} {rows} x {columns} to {outputs}: {far}");
        }
    }
}

/// Whatever would be chosen: each with tiles that are whole, and with rows, elements and outputs that end within one.
#[test]
fn each_kernel_of_many_rows() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(47);
    let mut worst = [0.0f64; 3];
    for tile in 0..KERNELS_OF_MANY_ROWS {
        let kernels = kernels.clone().with_tile(tile);
        for (rows, columns, outputs) in [(192, 192, [192, 96]), (70, 520, [200, 24]), (35, 72, [37, 6])] {
            let x = rng.bf16s(rows * columns);
            let weights = outputs.map(|outputs| rng.bf16s(outputs * columns));
            let up = rng.bf16s(outputs[0] * columns);
            let x64: Vec<f64> = wide(&x).collect();
            let parts = weights.each_ref().map(|weights| products(&x64, weights, columns));
            let (expected, case) = (beside(&parts), format!("{tile}: {rows} x {columns} to {outputs:?}"));
            let (gate, up64) = (beside(&parts[..1]), beside(&[products(&x64, &up, columns)]));
            let mut step = engine.step(&mut stream).unwrap();
            let x = span!(step, bf16, x);
            let spans = weights.each_ref().map(|weights| span!(step, bf16, weights[..]));
            let up = span!(step, bf16, up);
            let of = |span, rows| Matrix::new(span, rows, columns).unwrap().at_rest();
            let (two, up) =
                ([of(spans[0].read(), outputs[0]), of(spans[1].read(), outputs[1])], of(up.read(), outputs[0]));
            let inputs = Inputs::Plain(x.read());
            let all: usize = outputs.iter().sum();

            let mut out = span!(step, bf16, vec![bf16::NAN; rows * all + 64]);
            project(step.on, &kernels, &mut out.range(0..rows * all).unwrap(), &two, inputs, rows).unwrap();
            let found = read!(step, bf16, out);
            assert!(found[rows * all..].iter().all(|x| x.is_nan()), "{case}: written behind the last row");
            let far = distance(wide(&found[..rows * all]), &expected);
            assert!(far < BOUND, "{case}: bf16 {far}");
            worst[0] = worst[0].max(far);

            let mut out = span!(step, f32, vec![f32::NAN; rows * all]);
            project_f32(step.on, &kernels, &mut out, &two, inputs, rows).unwrap();
            let first = read!(step, f32, out);
            let far = distance(first.iter().map(|x| f64::from(*x)), &expected);
            assert!(far < SUM, "{case}: f32 {far}");
            worst[1] = worst[1].max(far);
            project_f32(step.on, &kernels, &mut out, &two, inputs, rows).unwrap();
            assert!(read!(step, f32, out) == first, "{case}: the same inputs gave other bits");

            let before = rng.f32s(rows * outputs[0]);
            let mut out = span!(step, f32, before);
            project_add(step.on, &kernels, &mut out, two[0], inputs, rows).unwrap();
            let sum: Vec<f64> = gate.iter().zip(&before).map(|(x, y)| x + f64::from(*y)).collect();
            let far = distance(read!(step, f32, out).iter().map(|x| f64::from(*x)), &sum);
            assert!(far < SUM, "{case}: add {far}");

            for activation in [Activation::Silu, Activation::GeluTanh] {
                let expected: Vec<f64> = gate.iter().zip(&up64).map(|(x, y)| act(activation, *x) * y).collect();
                let mut out = span!(step, bf16, vec![bf16::NAN; rows * outputs[0]]);
                project_gated(step.on, &kernels, &mut out, [two[0], up], inputs, (rows, activation)).unwrap();
                let far = distance(wide(&read!(step, bf16, out)), &expected);
                assert!(far < 8e-3, "{case}: {activation:?} {far}");
                worst[2] = worst[2].max(far);
            }
        }
    }
    println!("worst: bf16 {:.2e}, f32 {:.2e}, gated {:.2e}", worst[0], worst[1], worst[2]);
}

#[test]
fn what_does_not_fit_is_refused_before_the_launch() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let weights = step.scratch.take::<bf16>(64 * 64).unwrap();
    let x = step.scratch.take::<bf16>(64 * 5).unwrap();
    let (wide, norm) = (step.scratch.take::<f32>(64 * 65).unwrap(), step.scratch.take::<f32>(64).unwrap());
    let mut out = step.scratch.take::<bf16>(64 * 5).unwrap();
    let refused = Matrix::new(weights.read(), 64, 63).err().unwrap();
    assert!(refused.to_string().contains("matrix"), "{refused}");
    let matrix = Matrix::new(weights.read(), 64, 64).unwrap();
    let refused = project(step.on, &kernels, &mut out, &[matrix], Inputs::Plain(x.read()), 4).unwrap_err();
    assert!(refused.to_string().contains("project: x"), "{refused}");
    let refused = project(step.on, &kernels, &mut out, &[matrix; 2], Inputs::Plain(x.read()), 5).unwrap_err();
    assert!(refused.to_string().contains("project: out"), "{refused}");
    let refused = project(step.on, &kernels, &mut out, &[], Inputs::Plain(x.read()), 5).unwrap_err();
    assert!(refused.to_string().contains("one to three"), "{refused}");
    let normed = Inputs::Normed { x: wide.read(), weight: norm.read(), epsilon: 1e-5 };
    let refused = project(step.on, &kernels, &mut out, &[matrix], normed, 65).unwrap_err();
    assert!(refused.to_string().contains("normalise them first"), "{refused}");
    let half = Matrix::new(weights.read().range(0..32 * 64).unwrap(), 32, 64).unwrap();
    let refused =
        project_gated(step.on, &kernels, &mut out, [matrix, half], Inputs::Plain(x.read()), (5, Activation::Silu));
    assert!(refused.unwrap_err().to_string().contains("up rows"));
}

#[test]
fn the_two_ends_of_a_pass() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(43);
    let mut step = engine.step(&mut stream).unwrap();
    let (vocab, hidden) = (50, 72);
    let table = rng.bf16s(vocab * hidden);
    let tokens = [3u32, 49, 0, 50, 7];
    // Behind the table is no number.
    let span = span!(step, bf16, [&table[..], &vec![bf16::NAN; hidden]].concat());
    let span = span.read().range(0..table.len()).unwrap();
    let ids = span!(step, u32, tokens);
    let mut x = span!(step, f32, vec![f32::NAN; tokens.len() * hidden]);
    embed(step.on, &kernels, &mut x, Matrix::new(span, vocab, hidden).unwrap(), &ids, 1.5).unwrap();
    let found = read!(step, f32, x);
    let row = |token: u32| match token < 50 {
        true => table[token as usize * hidden..][..hidden].iter().map(|x| 1.5 * x.to_f32()).collect(),
        false => vec![0.0; hidden],
    };
    assert_eq!(found, tokens.into_iter().flat_map(row).collect::<Vec<_>>());

    let picks = span!(step, u32, [4u32, 0, 5]);
    let mut picked = span!(step, f32, vec![f32::NAN; 3 * hidden]);
    gather_rows(step.on, &kernels, &mut picked, &x, &picks, hidden).unwrap();
    let expected = [&found[4 * hidden..], &found[..hidden], &vec![0.0; hidden]].concat();
    assert_eq!(read!(step, f32, picked), expected);

    let (delta, weight) = (rng.f32s(3 * hidden), rng.f32s(hidden));
    let (delta_span, weight_span) = (span!(step, f32, delta), span!(step, f32, weight));
    add_rms_norm(step.on, &kernels, &mut picked, &delta_span, &weight_span, (3, 1e-6)).unwrap();
    let sum: Vec<f64> =
        normed(&delta, &weight, 1e-6).iter().zip(&expected).map(|(add, x)| add + f64::from(*x)).collect();
    let far = distance(read!(step, f32, picked).iter().map(|x| f64::from(*x)), &sum);
    assert!(far < 1e-5, "{far}");

    let mut capped = span!(step, f32, delta);
    softcap(step.on, &kernels, &mut capped, 2.0).unwrap();
    let expected: Vec<f64> = delta.iter().map(|x| 2.0 * (f64::from(*x) / 2.0).tanh()).collect();
    let far = distance(read!(step, f32, capped).iter().map(|x| f64::from(*x)), &expected);
    assert!(far < 1e-5, "{far}");

    let positions = span!(step, u32, [0u32, 5, 8191, 100_000]);
    let (mut sees, mut arrived) = (span!(step, u32, [9u32; 4]), span!(step, u32, [9u32; 700]));
    begin_pass(step.on, &kernels, &mut sees, &mut arrived, &positions).unwrap();
    assert_eq!(read!(step, u32, sees), [1, 6, 8192, 100_001]);
    assert!(read!(step, u32, arrived).iter().all(|counter| *counter == 0));
    let mut angles = span!(step, f32, vec![f32::NAN; 4 * 32 * 2]);
    // As Llama 3.1 stretches them: short waves as they are, long ones by 8, some in between.
    let factors: Vec<f32> = (0..32).map(|pair| (pair as f32 / 4.0 - 2.0).clamp(1.0, 8.0)).collect();
    let span = span!(step, f32, factors);
    for factors in [None, Some(&factors)] {
        let given = factors.map(|_| span.read());
        rope_angles_of(step.on, &kernels, &mut angles, &positions, (32, 1e6, 0.125), given).unwrap();
        for (index, pair) in read!(step, f32, angles).chunks(2).enumerate() {
            let factor = factors.map_or(1.0, |factors| f64::from(factors[index % 32]));
            let frequency = 0.125 * 1e6f64.powf(-((index % 32) as f64) / 32.0) / factor;
            let angle = [0.0, 5.0, 8191.0, 100_000.0][index / 32] * frequency;
            let apart = (f64::from(pair[0]) - angle.cos()).abs().max((f64::from(pair[1]) - angle.sin()).abs());
            assert!(apart < 1e-6, "{index}: {apart}");
        }
    }
    let few = span.read().range(0..31);
    let refused = rope_angles_of(step.on, &kernels, &mut angles, &positions, (32, 1e6, 0.125), few).unwrap_err();
    assert!(matches!(refused, LaunchError::Shape { expected: 32, found: 31, .. }), "{refused}");
}
