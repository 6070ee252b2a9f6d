//! One token from the residual stream to its page in one launch, against f64 on the CPU.

mod support;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, LaunchError, Limits, PageTable, Space, Step, StreamSpec,
    TableSpec, Tokens, bf16, f16, graph_captured,
};
use memtier_cuda::kernels::{Inputs, Matrix, PagedKv, RopeShape, RopeStyle, project_rope_kv_write};
use support::{Rng, backend, distance, kernels as load_kernels, pool, rounds};

/// A pool of f16 and its table.
#[graph_captured]
struct Pages {
    kv: BlockPool<GlobalKv<f16>, Cuda>,
    table: PageTable<GlobalKv<f16>, Cuda>,
}

const PAGE: usize = 16;
const COLUMNS: usize = 3;
const MARK: f32 = 77.0;
/// So large that a norm without it is seen to be wrong.
const EPSILON: f32 = 0.25;

struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    pairs: usize,
    hidden: usize,
    style: RopeStyle,
    /// Its row of a table that has one: there is no second.
    row: usize,
    /// Where the token is, or nowhere: behind the table, or in a hole.
    position: usize,
    hole: bool,
}

/// The product of a row of weights with the normalised input, as the kernel rounds both.
fn product(weights: &[bf16], input: &[f64]) -> f64 {
    let sum: f64 = weights.iter().zip(input).map(|(w, x)| f64::from(w.to_f32()) * x).sum();
    f64::from(bf16::from_f32(sum as f32).to_f32())
}

/// A head with its first `2 * pairs` elements rotated.
fn rotate(head: &[f64], angles: &[f32], style: RopeStyle) -> Vec<f64> {
    let (pairs, mut out) = (angles.len() / 2, head.to_vec());
    for pair in 0..pairs {
        let (a, b) = match style {
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
            RopeStyle::Halves => (pair, pair + pairs),
        };
        let (cos, sin) = (f64::from(angles[2 * pair]), f64::from(angles[2 * pair + 1]));
        (out[a], out[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
    out
}

/// Runs a case; gives the distances of queries, and of keys and values.
fn run(case: &Case, rng: &mut Rng) -> Option<(f64, f64)> {
    let Case { heads, kv_heads, head_dim, pairs, hidden, style, row, position, hole } = *case;
    let backend = backend()?;
    let kernels = load_kernels(&backend);
    let layer = 2 * kv_heads * PAGE * head_dim;
    let kv = PagedKv { layer_base: layer, kv_heads, head_dim, packed: None };
    let device = Device::new(backend, Bytes::gib(1));
    let mut engine = Engine::open(&device);
    let table = TableSpec { rows: 1, columns: COLUMNS };
    let lines = engine.declare_bundle::<Pages>(PagesSpec { kv: pool(PAGE, 2 * layer, COLUMNS), table });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(128) });
    let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(1))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Pages>().unwrap();
    let mut ticket = engine.bundle().kv.handle().open(Tokens::new((COLUMNS * PAGE) as u64));
    ticket.push(Blocks::new(COLUMNS as u64)).unwrap();
    if hole {
        ticket.evict(1);
    }

    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    step.buffers.table.set(on, 0, &ticket).unwrap();
    let marks = vec![f16::from_f32(MARK); 2 * layer];
    for index in (0..COLUMNS).filter(|index| !hole || *index != 1) {
        let mut block = step.buffers.kv.block_mut(&mut ticket, index).unwrap();
        on.write(&mut block, &marks).unwrap();
    }
    let x: Vec<f32> = rng.f32s(hidden);
    let norm: Vec<f32> = rng.f32s(hidden);
    let sizes = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim);
    let scaled = |count: usize, rng: &mut Rng| -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(rng.normal() / (hidden as f32).sqrt())).collect()
    };
    let weights = sizes.map(|rows| scaled(rows * hidden, rng));
    let angles: Vec<f32> = (0..pairs)
        .flat_map(|_| {
            let a = rng.normal();
            [a.cos(), a.sin()]
        })
        .collect();

    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let mut floats = |values: &[f32]| {
        let mut span = scratch.take::<f32>(values.len()).unwrap();
        on.write(&mut span, values).unwrap();
        span
    };
    let (x_span, norm_span, angle_span) = (floats(&x), floats(&norm), floats(&angles));
    let weight_spans = [0, 1, 2].map(|index: usize| {
        let mut span = scratch.take::<bf16>(weights[index].len()).unwrap();
        on.write(&mut span, &weights[index]).unwrap();
        span
    });
    let mut number = |value: u32| {
        let mut span = scratch.take::<u32>(1).unwrap();
        on.write(&mut span, &[value]).unwrap();
        span
    };
    let (row_span, at) = (number(row as u32), number(position as u32));
    let mut q = scratch.take::<f16>(heads * head_dim).unwrap();
    on.write(&mut q, &vec![f16::from_f32(f32::NAN); heads * head_dim]).unwrap();
    let matrices = [0, 1, 2].map(|index: usize| Matrix::new(weight_spans[index].read(), sizes[index], hidden).unwrap());
    let input = Inputs::Normed { x: x_span.read(), weight: norm_span.read(), epsilon: EPSILON };
    let shapes = (kv, RopeShape { heads, pairs, style });
    let mut slab = pool.slab_mut();
    project_rope_kv_write(
        on,
        &kernels,
        &mut q,
        &mut slab,
        table.ids(),
        matrices,
        input,
        &angle_span,
        [&row_span, &at],
        shapes,
    )
    .unwrap();

    let rms = (x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / hidden as f64 + f64::from(EPSILON)).sqrt();
    let input: Vec<f64> = x
        .iter()
        .zip(&norm)
        .map(|(x, w)| f64::from(bf16::from_f32((f64::from(*x) / rms * f64::from(*w)) as f32).to_f32()))
        .collect();
    let head = |which: usize, head: usize| -> Vec<f64> {
        let rows = weights[which].chunks(hidden).skip(head * head_dim).take(head_dim);
        rows.map(|row| product(row, &input)).collect()
    };
    let expected: Vec<f64> = (0..heads).flat_map(|index| rotate(&head(0, index), &angles, style)).collect();
    let mut found = vec![f16::ZERO; heads * head_dim];
    on.read::<f16>(&q, &mut found).unwrap();
    let of_queries = distance(found.iter().map(|x| x.to_f64()), &expected);

    let (mut written, mut expected) = (Vec::new(), Vec::new());
    for index in (0..COLUMNS).filter(|index| !hole || *index != 1) {
        let mut block = vec![f16::ZERO; 2 * layer];
        on.read::<f16>(step.buffers.kv.block(&ticket, index).unwrap(), &mut block).unwrap();
        for (element, value) in block.iter().enumerate() {
            let inside = element.checked_sub(layer).map(|element| (element / head_dim, element % head_dim));
            let mine = inside.filter(|(slot, _)| row == 0 && index * PAGE + slot % PAGE == position);
            match mine {
                None => assert_eq!(value.to_f32(), MARK, "another slot was written: block {index}, element {element}"),
                Some((slot, d)) => {
                    let part = slot / PAGE;
                    let of = match part < kv_heads {
                        true => rotate(&head(1, part), &angles, style),
                        false => head(2, part - kv_heads),
                    };
                    written.push(value.to_f64());
                    expected.push(of[d]);
                }
            }
        }
    }
    let there = row == 0 && position < COLUMNS * PAGE && !(hole && position / PAGE == 1);
    assert_eq!(written.len(), if there { 2 * kv_heads * head_dim } else { 0 });
    Some((of_queries, distance(written, &expected)))
}

#[test]
fn one_token_over_random_shapes() {
    let mut rng = Rng(61);
    let mut worst = (0.0f64, 0.0f64);
    for index in 0..rounds(16, 8) {
        let head_dim = rng.pick(&[16, 64, 128, 256]);
        let case = Case {
            heads: rng.pick(&[1, 3, 9]),
            kv_heads: rng.pick(&[1, 3]),
            head_dim,
            pairs: rng.pick(&[head_dim / 2, head_dim / 4, head_dim / 2]),
            hidden: rng.pick(&[8, 576, 640, 1000]),
            style: rng.pick(&[RopeStyle::Interleaved, RopeStyle::Halves]),
            row: usize::from(index % 8 == 6),
            position: rng.pick(&[0, 15, 16, 40, 48]),
            hole: index % 4 == 0,
        };
        let Some((queries, pages)) = run(&case, &mut rng) else { return };
        let Case { heads, kv_heads, head_dim, pairs, hidden, row, position, hole, .. } = case;
        println!(
            "{heads}/{kv_heads} x {head_dim}, {pairs} pairs, {hidden} columns, row {row}, at {position}, hole {hole}: {queries:.1e}, {pages:.1e}"
        );
        // Sums are rounded to bf16 on the way: some fall on the other side than in f64.
        assert!(queries < 4e-3 && pages < 4e-3, "{queries}, {pages}");
        worst = (worst.0.max(queries), worst.1.max(pages));
    }
    println!("worst: queries {:.2e}, keys and values {:.2e}", worst.0, worst.1);
}

#[test]
fn what_does_not_fit_is_refused_before_the_launch() {
    let Some(backend) = backend() else { return };
    let kernels = load_kernels(&backend);
    let device = Device::new(backend, Bytes::gib(1));
    let mut engine = Engine::open(&device);
    let layer = 2 * PAGE * 64;
    let lines = engine
        .declare_bundle::<Pages>(PagesSpec { kv: pool(PAGE, layer, 1), table: TableSpec { rows: 1, columns: 1 } });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(4) });
    let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(1))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Pages>().unwrap();
    let mut step = engine.step(&mut stream).unwrap();
    let Step { buffers: PagesView { kv: pool, table }, scratch, on, .. } = &mut step;
    let (x, norm, angles) =
        (scratch.take::<f32>(64).unwrap(), scratch.take::<f32>(64).unwrap(), scratch.take::<f32>(64).unwrap());
    let weights = scratch.take::<bf16>(64 * 64).unwrap();
    let rows = scratch.take::<u32>(2).unwrap();
    let mut q = scratch.take::<f16>(64).unwrap();
    let matrix = || Matrix::new(weights.read(), 64, 64).unwrap();
    let kv = PagedKv { layer_base: 0, kv_heads: 1, head_dim: 64, packed: None };
    let mut try_with = |heads: usize, tokens: usize, pairs: usize| {
        let input = Inputs::Normed { x: x.read(), weight: norm.read(), epsilon: 1e-5 };
        let at = rows.read().range(0..tokens).unwrap();
        let shapes = (kv, RopeShape { heads, pairs, style: RopeStyle::Halves });
        let matrices = [matrix(), matrix(), matrix()];
        let mut slab = pool.slab_mut();
        project_rope_kv_write(*on, &kernels, &mut q, &mut slab, table.ids(), matrices, input, &angles, [at, at], shapes)
    };
    assert!(matches!(try_with(1, 2, 32), Err(LaunchError::Unsupported { .. })), "two tokens");
    assert!(matches!(try_with(2, 1, 32), Err(LaunchError::Shape { .. })), "two heads of a matrix of one");
    assert!(matches!(try_with(1, 1, 33), Err(LaunchError::Unsupported { .. })), "more pairs than half a head");
    assert!(matches!(try_with(1, 1, 16), Err(LaunchError::Shape { .. })), "angles of other pairs");
    try_with(1, 1, 32).unwrap();
}
