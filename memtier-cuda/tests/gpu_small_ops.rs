//! Element-wise kernels, norms, gates and rotary positions against f64 on the CPU.

mod support;

use memtier::{Blocks, Bytes, LaunchError, Step, TableSpec, Tokens, bf16};
use memtier_cuda::kernels::{
    self, Activation, HeadNorms, Matrix, PagedKv, RopeShape, RopeStyle, add_rms_norm, begin_pass, embed, gather_rows,
    residual_rms_norm, residual_rms_norm_bf16, rms_norm, rms_norm_bf16, rope_angles, rope_angles_of, rope_kv_write,
    softcap,
};
use support::{Rig, Rng, ToyView, distance, pool, wide};

/// How far correctly rounded bf16 results may be: at most 2^-8 each, and about 1.7e-3 together where there are many. This
/// leaves some room.
fn bf16_bound(count: usize) -> f64 {
    if count < 256 { 4.2e-3 } else { 2.3e-3 }
}

/// So large that a norm without it is seen to be wrong.
const EPSILON: f32 = 0.25;

fn rig() -> Option<Rig> {
    Rig::new(Bytes::mib(512), pool(16, 16 * 64, 8), TableSpec { rows: 2, columns: 4 })
}

#[test]
fn scale_and_add() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(1);
    for n in [1, 31, 256, 1000, 65_537, 3_000_001] {
        let (x, y, factor) = (rng.f32s(n), rng.f32s(n), rng.normal());
        let mut step = engine.step(&mut stream).unwrap();
        let mut span = |values: &[f32]| {
            let mut span = step.scratch.take::<f32>(values.len()).unwrap();
            step.on.write(&mut span, values).unwrap();
            span
        };
        let (a, b, mut out) = (span(&x), span(&y), span(&vec![f32::NAN; n]));
        let mut found = vec![0.0; n];
        kernels::scale(step.on, &kernels, &mut out, &a, factor).unwrap();
        step.on.read::<f32>(&out, &mut found).unwrap();
        assert!(found.iter().zip(&x).all(|(found, x)| *found == factor * x), "scale {n}");
        kernels::add(step.on, &kernels, &mut out, &a, &b).unwrap();
        step.on.read::<f32>(&out, &mut found).unwrap();
        assert!(found.iter().zip(x.iter().zip(&y)).all(|(found, (x, y))| *found == x + y), "add {n}");
    }
}

#[test]
fn spans_of_the_wrong_length_are_refused_before_the_launch() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let mut out = step.scratch.take::<f32>(16).unwrap();
    let x = step.scratch.take::<f32>(15).unwrap();
    let refused = kernels::scale(step.on, &kernels, &mut out, &x, 1.0).unwrap_err();
    assert_eq!(refused, LaunchError::Shape { what: "scale: x", expected: 16, found: 15 });
    let mut wide = step.scratch.take::<bf16>(36).unwrap();
    let (row, weight) = (step.scratch.take::<bf16>(36).unwrap(), step.scratch.take::<bf16>(12).unwrap());
    let refused = rms_norm_bf16(step.on, &kernels, &mut wide, &row, &weight, (3, 1e-5)).unwrap_err();
    assert!(refused.to_string().contains("multiple of 8"), "{refused}");
    // Spans may begin anywhere: what reads 16 bytes at a time says so, what does not takes them as they are.
    let mut odd = step.scratch.take::<bf16>(25).unwrap();
    let mut odd = odd.range(1..25).unwrap();
    let (row, weight) = (step.scratch.take::<bf16>(24).unwrap(), step.scratch.take::<bf16>(8).unwrap());
    let refused = rms_norm_bf16(step.on, &kernels, &mut odd, &row, &weight, (3, 1e-5)).unwrap_err();
    assert!(refused.to_string().contains("multiples of 16 bytes"), "{refused}");
    let (mut out, mut x) = (step.scratch.take::<f32>(18).unwrap(), step.scratch.take::<f32>(18).unwrap());
    let numbers: Vec<f32> = (0..18u8).map(f32::from).collect();
    step.on.write(&mut x, &numbers).unwrap();
    step.on.write(&mut out, &[-1.0; 18]).unwrap();
    let part = x.read().range(1..18).unwrap();
    kernels::scale(step.on, &kernels, &mut out.range(0..17).unwrap(), part, 3.0).unwrap();
    let mut found = [0.0; 18];
    step.on.read::<f32>(&out, &mut found).unwrap();
    assert!(found[..17].iter().zip(&numbers[1..]).all(|(found, x)| *found == 3.0 * x) && found[17] == -1.0);
}

/// The norm of a row in f64.
fn norm_of(row: &[f64], weight: &[bf16], epsilon: f32) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
    row.iter().zip(wide(weight)).map(|(x, w)| x * scale * w).collect()
}

#[test]
fn norms_alone_and_behind_the_residual() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(2);
    for (rows, hidden) in
        [(1, 8), (3, 64), (7, 576), (2, 640), (5, 4096), (33, 5120), (2, 32_768), (1027, 24), (1030, 1032)]
    {
        let epsilon = EPSILON;
        let (stream32, delta, weight) = (rng.f32s(rows * hidden), rng.bf16s(rows * hidden), rng.bf16s(hidden));
        let stream16: Vec<bf16> = stream32.iter().map(|x| bf16::from_f32(*x)).collect();
        let n = rows * hidden;
        let mut step = engine.step(&mut stream).unwrap();
        let on = step.on;
        let mut take16 = |values: &[bf16]| {
            let mut span = step.scratch.take::<bf16>(values.len()).unwrap();
            on.write(&mut span, values).unwrap();
            span
        };
        let (delta_span, weight_span) = (take16(&delta), take16(&weight));
        let mut residual16 = take16(&stream16);
        let mut out = take16(&vec![bf16::NAN; n]);
        let mut residual32 = step.scratch.take::<f32>(n).unwrap();
        on.write(&mut residual32, &stream32).unwrap();
        let mut found = vec![bf16::ZERO; n];

        rms_norm(on, &kernels, &mut out, &residual32, &weight_span, (rows, epsilon)).unwrap();
        on.read::<bf16>(&out, &mut found).unwrap();
        let plain =
            |x: &[f64]| -> Vec<f64> { x.chunks(hidden).flat_map(|row| norm_of(row, &weight, epsilon)).collect() };
        let far = distance(wide(&found), &plain(&stream32.iter().map(|x| f64::from(*x)).collect::<Vec<_>>()));
        assert!(far < bf16_bound(n), "norm f32 {rows}x{hidden}: {far}");

        rms_norm_bf16(on, &kernels, &mut out, &residual16, &weight_span, (rows, epsilon)).unwrap();
        on.read::<bf16>(&out, &mut found).unwrap();
        let far = distance(wide(&found), &plain(&wide(&stream16).collect::<Vec<_>>()));
        assert!(far < bf16_bound(n), "norm bf16 {rows}x{hidden}: {far}");

        residual_rms_norm(on, &kernels, &mut out, &mut residual32, &delta_span, &weight_span, (rows, epsilon)).unwrap();
        on.read::<bf16>(&out, &mut found).unwrap();
        let sum: Vec<f32> = stream32.iter().zip(&delta).map(|(x, d)| x + d.to_f32()).collect();
        let far = distance(wide(&found), &plain(&sum.iter().map(|x| f64::from(*x)).collect::<Vec<_>>()));
        assert!(far < bf16_bound(n), "residual norm f32 {rows}x{hidden}: {far}");
        let mut left = vec![0.0; n];
        on.read::<f32>(&residual32, &mut left).unwrap();
        assert!(left == sum, "the residual stream is the exact f32 sum");
        let mut again = vec![bf16::ZERO; n];
        rms_norm(on, &kernels, &mut out, &residual32, &weight_span, (rows, epsilon)).unwrap();
        on.read::<bf16>(&out, &mut again).unwrap();
        assert!(again == found, "the norm of the residual stream has other bits behind the addition");

        let pair = (rows, epsilon);
        residual_rms_norm_bf16(on, &kernels, &mut out, &mut residual16, &delta_span, &weight_span, pair).unwrap();
        on.read::<bf16>(&out, &mut found).unwrap();
        let sum: Vec<bf16> =
            stream16.iter().zip(&delta).map(|(x, d)| bf16::from_f32(x.to_f32() + d.to_f32())).collect();
        let far = distance(wide(&found), &plain(&wide(&sum).collect::<Vec<_>>()));
        assert!(far < bf16_bound(n), "residual norm bf16 {rows}x{hidden}: {far}");
        let mut left = vec![bf16::ZERO; n];
        on.read::<bf16>(&residual16, &mut left).unwrap();
        assert!(left == sum, "the residual stream is the rounded sum");
        let mut again = vec![bf16::ZERO; n];
        rms_norm_bf16(on, &kernels, &mut out, &residual16, &weight_span, (rows, epsilon)).unwrap();
        on.read::<bf16>(&out, &mut again).unwrap();
        assert!(again == found, "the norm of the residual stream has other bits behind the addition");
    }
}

#[test]
fn gates() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(3);
    for (rows, columns) in [(1, 8), (3, 1536), (17, 2048), (1, 14_336), (64, 576)] {
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let mut input = rng.bf16s(rows * columns * 2);
            // Where e^-x leaves f32.
            input[0] = bf16::from_f32(-200.0);
            input[1] = bf16::from_f32(200.0);
            let mut step = engine.step(&mut stream).unwrap();
            let on = step.on;
            let mut from = step.scratch.take::<bf16>(input.len()).unwrap();
            let mut out = step.scratch.take::<bf16>(rows * columns).unwrap();
            on.write(&mut from, &input).unwrap();
            on.write(&mut out, &vec![bf16::NAN; rows * columns]).unwrap();
            kernels::gate(on, &kernels, &mut out, &from, columns, activation).unwrap();
            let mut found = vec![bf16::ZERO; rows * columns];
            on.read::<bf16>(&out, &mut found).unwrap();
            let act = |x: f64| match activation {
                Activation::Silu => x / (1.0 + (-x).exp()),
                Activation::GeluTanh => {
                    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
                }
            };
            let row = |row: &[bf16]| -> Vec<f64> {
                wide(&row[..columns]).zip(wide(&row[columns..])).map(|(gate, up)| act(gate) * up).collect()
            };
            let expected: Vec<f64> = input.chunks(columns * 2).flat_map(row).collect();
            let far = distance(wide(&found), &expected);
            assert!(far < bf16_bound(rows * columns), "{activation:?} {rows}x{columns}: {far}");
        }
    }
}

/// Rotates a head in f64, after its norm.
fn rotate(head: &[f64], norm: Option<&[bf16]>, angles: &[(f64, f64)], style: RopeStyle) -> Vec<f64> {
    let mut head = norm.map_or_else(|| head.to_vec(), |weight| norm_of(head, weight, EPSILON));
    let pairs = angles.len();
    for (pair, (cos, sin)) in angles.iter().enumerate() {
        let (i, j) = match style {
            RopeStyle::Halves => (pair, pair + pairs),
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let (a, b) = (head[i], head[j]);
        (head[i], head[j]) = (a * cos - b * sin, a * sin + b * cos);
    }
    head
}

#[test]
fn rotation_and_the_write_into_pages() {
    let mut rng = Rng(4);
    let cases = [
        (9, 3, 64, 32, 16, RopeStyle::Halves, false),
        (4, 1, 256, 128, 32, RopeStyle::Halves, true),
        (8, 2, 128, 64, 64, RopeStyle::Interleaved, false),
        (2, 2, 96, 24, 16, RopeStyle::Halves, true),
        (1, 1, 72, 36, 16, RopeStyle::Interleaved, true),
    ];
    for (heads, kv_heads, head_dim, pairs, page, style, normed) in cases {
        let layer = 2 * kv_heads * page * head_dim;
        let kv = PagedKv { layer_base: layer, kv_heads, head_dim, packed: None };
        let (rows, columns) = (3, 5);
        // Two layers a block; the second is written.
        let rig = Rig::new(Bytes::mib(64), pool(page, 2 * layer, rows * columns), TableSpec { rows, columns });
        let Some(Rig { kernels, mut engine, mut stream, .. }) = rig else { return };
        let handle = engine.bundle().kv.handle();
        let mut tickets: Vec<_> = (0..rows).map(|_| handle.open(Tokens::new((columns * page) as u64))).collect();
        for ticket in &mut tickets {
            ticket.push(Blocks::new(columns as u64)).unwrap();
        }
        tickets[1].evict(0);
        // Every row somewhere; one token in the hole, one row and one position outside of the table.
        let mut at: Vec<(u32, u32)> = vec![(1, 3), (rows as u32, 0), (1, (columns * page) as u32)];
        while at.len() < 41 {
            let token = (rng.below(rows) as u32, rng.below(columns * page) as u32);
            if !at.contains(&token) {
                at.push(token);
            }
        }
        let (tokens, all) = (at.len(), heads + 2 * kv_heads);
        let qkv = rng.bf16s(tokens * all * head_dim);
        let weights = [rng.bf16s(head_dim), rng.bf16s(head_dim)];
        let frequencies: Vec<f32> = (0..pairs).map(|pair| 10_000f32.powf(-(pair as f32) / pairs as f32)).collect();
        // Real positions are small here; the angles are tested on large ones as well.
        let far: Vec<u32> = at.iter().map(|(_, position)| position * 1013).collect();

        let mut step = engine.step(&mut stream).unwrap();
        let on = step.on;
        for (row, ticket) in tickets.iter().enumerate() {
            step.buffers.table.set(on, row, ticket).unwrap();
        }
        let marker = vec![bf16::from_f32(77.0); 2 * layer];
        for (row, ticket) in tickets.iter_mut().enumerate() {
            for index in usize::from(row == 1)..columns {
                let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
                on.write(&mut block, &marker).unwrap();
            }
        }
        let Step { buffers: ToyView { kv: pool, table, .. }, scratch, .. } = &mut step;
        let mut take16 = |values: &[bf16]| {
            let mut span = scratch.take::<bf16>(values.len()).unwrap();
            on.write(&mut span, values).unwrap();
            span
        };
        let (qkv_span, q_weight, k_weight) = (take16(&qkv), take16(&weights[0]), take16(&weights[1]));
        let mut q = take16(&vec![bf16::NAN; tokens * heads * head_dim]);
        let mut take32 = |values: &[u32]| {
            let mut span = scratch.take::<u32>(values.len()).unwrap();
            on.write(&mut span, values).unwrap();
            span
        };
        let rows_span = take32(&at.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        let positions = take32(&at.iter().map(|(_, position)| *position).collect::<Vec<_>>());
        let far_span = take32(&far);
        let mut frequency_span = scratch.take::<f32>(pairs).unwrap();
        on.write(&mut frequency_span, &frequencies).unwrap();
        let mut angles = scratch.take::<f32>(tokens * pairs * 2).unwrap();
        let mut table_of_angles = vec![0.0f32; tokens * pairs * 2];

        rope_angles(on, &kernels, &mut angles, &far_span, &frequency_span).unwrap();
        on.read::<f32>(&angles, &mut table_of_angles).unwrap();
        for (token, position) in far.iter().enumerate() {
            for (pair, frequency) in frequencies.iter().enumerate() {
                // The angle is an f32 product, as in the models' own code; its functions are exact to f32.
                let angle = f64::from(*position as f32 * frequency);
                let at = (token * pairs + pair) * 2;
                let (cos, sin) = (f64::from(table_of_angles[at]), f64::from(table_of_angles[at + 1]));
                let apart = (cos - angle.cos()).abs().max((sin - angle.sin()).abs());
                assert!(apart < 1e-7, "position {position}, pair {pair}: {apart}");
            }
        }

        rope_angles(on, &kernels, &mut angles, &positions, &frequency_span).unwrap();
        on.read::<f32>(&angles, &mut table_of_angles).unwrap();
        let norms = normed.then(|| HeadNorms { q: q_weight.read(), k: k_weight.read(), epsilon: EPSILON });
        let shape = RopeShape { heads, pairs, style };
        let mut slab = pool.slab_mut();
        let pair = [&rows_span, &positions];
        rope_kv_write(on, &kernels, &mut q, &mut slab, table.ids(), &qkv_span, &angles, pair, norms, (kv, shape))
            .unwrap();

        let mut found = vec![bf16::ZERO; tokens * heads * head_dim];
        on.read::<bf16>(&q, &mut found).unwrap();
        let of_token = |token: usize| -> Vec<(f64, f64)> {
            let angles = &table_of_angles[token * pairs * 2..][..pairs * 2];
            angles.chunks(2).map(|pair| (f64::from(pair[0]), f64::from(pair[1]))).collect()
        };
        let head_of = |token: usize, head: usize| -> Vec<f64> {
            wide(&qkv[(token * all + head) * head_dim..][..head_dim]).collect()
        };
        let weight = |which: usize| normed.then_some(&weights[which][..]);
        let mut expected = Vec::new();
        for token in 0..tokens {
            for head in 0..heads {
                expected.extend(rotate(&head_of(token, head), weight(0), &of_token(token), style));
            }
        }
        let far = distance(wide(&found), &expected);
        assert!(far < bf16_bound(expected.len()), "queries of {heads}/{kv_heads}x{head_dim}: {far}");

        // Pages: what was written, and that nothing else was.
        for (row, ticket) in tickets.iter().enumerate() {
            for index in usize::from(row == 1)..columns {
                let mut block = vec![bf16::ZERO; 2 * layer];
                let span = step.buffers.kv.block(ticket, index).unwrap();
                step.on.read::<bf16>(span, &mut block).unwrap();
                assert!(block[..layer] == marker[..layer], "the other layer was written");
                for slot in 0..page {
                    let token = at.iter().position(|it| *it == (row as u32, (index * page + slot) as u32));
                    for part in 0..2 * kv_heads {
                        let found = &block[layer + (part * page + slot) * head_dim..][..head_dim];
                        let Some(token) = token else {
                            assert!(found == &marker[..head_dim], "a slot of no token was written");
                            continue;
                        };
                        let head = head_of(token, heads + part);
                        let expected = match part < kv_heads {
                            true => rotate(&head, weight(1), &of_token(token), style),
                            false => head,
                        };
                        let far = distance(wide(found), &expected);
                        assert!(far < 4e-3, "token {token}, part {part}: {far}");
                    }
                }
            }
        }
    }
}

/// Launches have more threads than there is work: those behind the end write nothing.
#[test]
fn nothing_is_written_behind_the_end_of_an_output() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let Step { buffers: ToyView { kv: pool, table, .. }, scratch, on, .. } = &mut step;
    let on = *on;
    // A span of so many elements, and what comes behind it.
    macro_rules! span {
        ($element:ty, $count:expr, $value:expr) => {{
            let mut span = scratch.take::<$element>($count).unwrap();
            let values: Vec<$element> = std::iter::repeat_n($value, $count).collect();
            on.write(&mut span, &values).unwrap();
            span
        }};
    }
    macro_rules! guarded {
        ($element:ty, $mark:expr, $count:expr, $out:ident => $launch:expr) => {{
            let count: usize = $count;
            let mut span = span!($element, count + 256, $mark);
            {
                let mut $out = span.range(0..count).unwrap();
                $launch.unwrap();
            }
            let mut found = vec![$mark; count + 256];
            on.read::<$element>(&span, &mut found).unwrap();
            assert!(found[..count].iter().any(|x| *x != $mark), "{}: nothing was written", stringify!($launch));
            assert!(found[count..].iter().all(|x| *x == $mark), "written behind the end: {}", stringify!($launch));
        }};
    }
    let one = bf16::from_f32(1.0);
    let mark = bf16::from_f32(77.0);
    // Rows of warps, of which a block has several; and rows of blocks.
    for (rows, hidden) in [(1027, 24), (3, 1032)] {
        let (ones, weight) = (span!(bf16, rows * hidden + 4096, one), span!(bf16, hidden, one));
        let x = ones.read().range(0..rows * hidden).unwrap();
        let (floats, wide_weight) = (span!(f32, rows * hidden + 4096, 1.0), span!(f32, hidden, 1.0));
        let delta = floats.read().range(0..rows * hidden).unwrap();
        let shape = (rows, EPSILON);
        guarded!(bf16, mark, rows * hidden, out => rms_norm_bf16(on, &kernels, &mut out, x, &weight, shape));
        let mut out = span!(bf16, rows * hidden, mark);
        guarded!(f32, 77.0, rows * hidden, to => {
            residual_rms_norm(on, &kernels, &mut out, &mut to, x, &weight, shape)
        });
        guarded!(f32, 77.0, rows * hidden, to => add_rms_norm(on, &kernels, &mut to, delta, &wide_weight, shape));
    }
    let input = span!(bf16, 5 * 2 * 72 + 64, one);
    let both = input.read().range(0..5 * 2 * 72).unwrap();
    guarded!(bf16, mark, 5 * 72, out => kernels::gate(on, &kernels, &mut out, both, 72, Activation::Silu));
    let numbers = span!(u32, 64, 1);
    let three = numbers.read().range(0..3).unwrap();
    let rows = span!(bf16, 4 * 72, one);
    let matrix = Matrix::new(rows.read(), 4, 72).unwrap();
    guarded!(f32, 77.0, 3 * 72, out => embed(on, &kernels, &mut out, matrix, three, 2.0));
    let floats = span!(f32, 4 * 72, 1.0);
    guarded!(f32, 77.0, 3 * 72, out => gather_rows(on, &kernels, &mut out, &floats, three, 72));
    guarded!(f32, 77.0, 300, x => softcap(on, &kernels, &mut x, 2.0));
    let mut other = span!(u32, 700, 9);
    guarded!(u32, 77, 3, sees => begin_pass(on, &kernels, &mut sees, &mut other.range(0..300).unwrap(), three));
    let mut sees = span!(u32, 3, 9);
    guarded!(u32, 77, 300, arrived => begin_pass(on, &kernels, &mut sees, &mut arrived, three));
    let frequencies = span!(f32, 7, 0.5);
    guarded!(f32, 77.0, 3 * 7 * 2, out => rope_angles(on, &kernels, &mut out, three, &frequencies));
    guarded!(f32, 77.0, 3 * 10 * 2, out => { rope_angles_of(on, &kernels, &mut out, three, (10, 1e4, 1.0), None) });
    // Nine heads by warps, of which a block has four.
    let (qkv, angles) = (span!(bf16, 12 * 32, one), span!(f32, 4 * 32, 1.0));
    let (qkv, angles) = (qkv.read().range(0..9 * 32).unwrap(), angles.read().range(0..3 * 32).unwrap());
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: 32, packed: None };
    let shapes = (kv, RopeShape { heads: 1, pairs: 16, style: RopeStyle::Interleaved });
    guarded!(bf16, mark, 3 * 32, q => {
        let at = [three, three];
        rope_kv_write(on, &kernels, &mut q, &mut pool.slab_mut(), table.ids(), qkv, angles, at, None, shapes)
    });
}

#[test]
fn a_norm_of_long_rows_is_added() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(5);
    for (rows, hidden) in [(3, 1032), (2, 5120)] {
        let (delta, before) = (rng.f32s(rows * hidden), rng.f32s(rows * hidden));
        let weight = rng.bf16s(hidden);
        let mut step = engine.step(&mut stream).unwrap();
        let mut span = |values: &[f32]| {
            let mut span = step.scratch.take::<f32>(values.len()).unwrap();
            step.on.write(&mut span, values).unwrap();
            span
        };
        let wide_weight: Vec<f32> = weight.iter().map(|w| w.to_f32()).collect();
        let (delta_span, weight_span, mut residual) = (span(&delta), span(&wide_weight), span(&before));
        add_rms_norm(step.on, &kernels, &mut residual, &delta_span, &weight_span, (rows, EPSILON)).unwrap();
        let mut found = vec![0.0; rows * hidden];
        step.on.read::<f32>(&residual, &mut found).unwrap();
        let delta: Vec<f64> = delta.iter().map(|x| f64::from(*x)).collect();
        let added = delta.chunks(hidden).flat_map(|row| norm_of(row, &weight, EPSILON));
        let expected: Vec<f64> = added.zip(&before).map(|(add, x)| add + f64::from(*x)).collect();
        let far = distance(found.iter().map(|x| f64::from(*x)), &expected);
        assert!(far < 1e-5, "{rows}x{hidden}: {far}");
    }
}
