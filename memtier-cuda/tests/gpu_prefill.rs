//! Paged prefill attention, and decode over f16 pages, against f64 on the CPU.

mod support;

use memtier::{
    BlockPool, Blocks, Bytes, Cuda, Device, Engine, GlobalKv, Limits, PageTable, Space, Step, StreamSpec, TableSpec,
    Tokens, bf16, f16, graph_captured,
};
use memtier_cuda::kernels::{DecodeShape, DecodeWork, PagedKv, PrefillShape, begin_pass, paged_decode, paged_prefill};
use support::{Rng, backend, distance, kernels as load_kernels, pool, rounds, wide};

/// A pool of f16 and its table.
#[graph_captured]
struct Pages {
    kv: BlockPool<GlobalKv<f16>, Cuda>,
    table: PageTable<GlobalKv<f16>, Cuda>,
}

/// One token of a pass: whose it is, and where.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    position: usize,
}

struct Case {
    head_dim: usize,
    kv_heads: usize,
    group: usize,
    page: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    /// Runs: a row, the position of its first token, and how many.
    runs: Vec<(usize, usize, usize)>,
    hole: bool,
}

/// One query of one head in f64.
fn attend(query: &[f64], keys: &[(Vec<f64>, Vec<f64>)], scale: f64, softcap: Option<f32>) -> Vec<f64> {
    let score = |key: &[f64]| {
        let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale;
        softcap.map_or(product, |cap| f64::from(cap) * (product / f64::from(cap)).tanh())
    };
    let scores: Vec<f64> = keys.iter().map(|(key, _)| score(key)).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
    let mut out = vec![0.0; query.len()];
    for (score, (_, value)) in scores.iter().zip(keys) {
        out.iter_mut().zip(value).for_each(|(out, v)| *out += (score - most).exp() / total * v);
    }
    out
}

fn f16s(rng: &mut Rng, count: usize) -> Vec<f16> {
    (0..count).map(|_| f16::from_f32(rng.normal())).collect()
}

/// One query that sees a token too many is hidden by those beside it.
fn each_query(found: &[bf16], expected: &[f64], head_dim: usize, what: &str) {
    for (index, (found, expected)) in found.chunks(head_dim).zip(expected.chunks(head_dim)).enumerate() {
        let far = distance(wide(found), expected);
        assert!(far < 8e-3, "{what}: query {index}: {far}");
    }
}

/// Runs a case in prefill and, token by token, in decode; gives the distances of both.
fn run(case: &Case, rng: &mut Rng) -> Option<(f64, f64)> {
    let Case { head_dim, kv_heads, group, page, window, softcap, runs, hole } = case;
    let (head_dim, kv_heads, page, heads) = (*head_dim, *kv_heads, *page, kv_heads * group);
    let backend = backend()?;
    let kernels = load_kernels(&backend);
    let rows = runs.iter().map(|run| run.0).max().unwrap_or(0) + 1;
    let columns = runs.iter().map(|(_, first, count)| (first + count).div_ceil(page)).max().unwrap_or(1) + 1;
    let layer = 2 * kv_heads * page * head_dim;
    let kv = PagedKv { layer_base: layer, kv_heads, head_dim, packed: None };
    let device = Device::new(backend, Bytes::gib(2));
    let mut engine = Engine::open(&device);
    let (kv_spec, table) = (pool(page, 2 * layer, rows * columns), TableSpec { rows, columns });
    let lines = engine.declare_bundle::<Pages>(PagesSpec { kv: kv_spec, table });
    let stream = engine.declare(StreamSpec { scratch: Bytes::mib(256) });
    let mut engine = engine.plan(Limits::new(Cuda::NAME, Bytes::gib(2))).unwrap().carve(lines).unwrap();
    let mut stream = engine.open_stream(stream).unwrap();
    let mut engine = engine.serve::<Pages>().unwrap();

    let handle = engine.bundle().kv.handle();
    let mut tickets: Vec<_> = (0..rows).map(|_| handle.open(Tokens::new((columns * page) as u64))).collect();
    let contents: Vec<Vec<Vec<f16>>> =
        (0..rows).map(|_| (0..columns).map(|_| f16s(rng, 2 * layer)).collect()).collect();
    for ticket in &mut tickets {
        ticket.push(Blocks::new(columns as u64)).unwrap();
    }
    // The second page of row 0, if there is one in front of somebody's last.
    let hole = (*hole && columns > 2).then_some(1);
    if let Some(index) = hole {
        tickets[0].evict(index);
    }
    let tokens: Vec<At> = runs
        .iter()
        .flat_map(|(row, first, count)| (*first..first + count).map(|position| At { row: *row, position }))
        .collect();
    let q = f16s(rng, tokens.len() * heads * head_dim);

    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    for (row, ticket) in tickets.iter_mut().enumerate() {
        step.buffers.table.set(on, row, ticket).unwrap();
        for index in (0..columns).filter(|index| row != 0 || hole != Some(*index)) {
            let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
            on.write(&mut block, &contents[row][index]).unwrap();
        }
    }
    let Step { buffers: PagesView { kv: pool, table }, scratch, .. } = &mut step;
    let mut numbers = |values: Vec<u32>| {
        let mut span = scratch.take::<u32>(values.len()).unwrap();
        on.write(&mut span, &values).unwrap();
        span
    };
    let row_span = numbers(tokens.iter().map(|at| at.row as u32).collect());
    let positions = numbers(tokens.iter().map(|at| at.position as u32).collect());
    let shape = DecodeShape {
        heads,
        scale: 1.0 / (head_dim as f32).sqrt(),
        window: *window,
        softcap: *softcap,
        shares: 1 + rng.below(5),
    };
    let (mut sees, mut arrived) =
        (numbers(vec![0; tokens.len()]), numbers(vec![7; shape.counters(tokens.len(), kv_heads).unwrap()]));
    let mut q_span = scratch.take::<f16>(q.len()).unwrap();
    on.write(&mut q_span, &q).unwrap();
    let mut partial = scratch.take::<f32>(shape.partial_units(tokens.len(), head_dim).unwrap()).unwrap();
    let mut out = scratch.take::<bf16>(q.len()).unwrap();
    let mut found = vec![bf16::ZERO; q.len()];

    let mut expected = Vec::new();
    for (index, At { row, position }) in tokens.iter().copied().enumerate() {
        let start = window.map_or(0, |window| (position + 1).saturating_sub(window));
        for head in 0..heads {
            let of = |part: usize, token: usize| -> Vec<f64> {
                let block = &contents[row][token / page][layer + (part * page + token % page) * head_dim..][..head_dim];
                block.iter().map(|x| x.to_f64()).collect()
            };
            let there = (start..=position).filter(|token| row != 0 || hole != Some(token / page));
            let keys: Vec<_> =
                there.map(|token| (of(head / group, token), of(kv_heads + head / group, token))).collect();
            let query: Vec<f64> =
                q[(index * heads + head) * head_dim..][..head_dim].iter().map(|x| x.to_f64()).collect();
            expected.extend(attend(&query, &keys, f64::from(shape.scale), *softcap));
        }
    }

    let DecodeShape { heads, scale, window, softcap, .. } = shape;
    let prefill = PrefillShape { heads, scale, window, softcap };
    on.write(&mut out, &vec![bf16::NAN; q.len()]).unwrap();
    let at = [&row_span, &positions];
    paged_prefill(on, &kernels, &mut out, &q_span, &pool.slab(), table.ids(), at, (kv, prefill)).unwrap();
    on.read::<bf16>(&out, &mut found).unwrap();
    let far_prefill = distance(wide(&found), &expected);
    each_query(&found, &expected, head_dim, "prefill");
    let bits: Vec<u16> = found.iter().map(|x| x.to_bits()).collect();
    paged_prefill(on, &kernels, &mut out, &q_span, &pool.slab(), table.ids(), at, (kv, prefill)).unwrap();
    on.read::<bf16>(&out, &mut found).unwrap();
    assert!(found.iter().zip(&bits).all(|(x, bits)| x.to_bits() == *bits), "the same inputs gave other bits");

    begin_pass(on, &kernels, &mut sees, &mut arrived, &positions).unwrap();
    on.write(&mut out, &vec![bf16::NAN; q.len()]).unwrap();
    let work = DecodeWork { partial: &mut partial, arrived: &mut arrived };
    let at = [&row_span, &sees];
    paged_decode(on, &kernels, &mut out, work, &q_span, &pool.slab(), table.ids(), at, (kv, shape)).unwrap();
    on.read::<bf16>(&out, &mut found).unwrap();
    each_query(&found, &expected, head_dim, "decode");
    Some((far_prefill, distance(wide(&found), &expected)))
}

#[test]
fn prefill_over_random_runs() {
    let mut rng = Rng(51);
    let mut worst = (0.0f64, 0.0f64);
    for index in 0..rounds(18, 9) {
        let head_dim = [64, 128, 256][index % 3];
        // Rows come in any order; a run is one sequence's part of a pass.
        let count = 1 + rng.below(4);
        let runs: Vec<_> = (0..count)
            .rev()
            .map(|row| (row, rng.pick(&[0, 0, 1, 63, 100]), rng.pick(&[1, 2, 15, 64, 65, 130])))
            .collect();
        let case = Case {
            head_dim,
            kv_heads: rng.pick(&[1, 2, 3]),
            group: [1, 3, 4][index / 3 % 3],
            page: rng.pick(&[16, 32, 64]),
            window: rng.pick(&[None, None, Some(1), Some(40), Some(100)]),
            softcap: rng.pick(&[None, None, Some(20.0)]),
            runs,
            // A hole where nothing else would be left to see says nothing: with the whole context only.
            hole: index % 4 == 0,
        };
        let case = Case { hole: case.hole && case.window.is_none(), ..case };
        let Some((prefill, decode)) = run(&case, &mut rng) else { return };
        let Case { kv_heads, group, page, window, softcap, runs, hole, .. } = &case;
        println!(
            "head_dim {head_dim}, {kv_heads} kv heads x {group}, page {page}, window {window:?}, softcap {softcap:?}, hole \
             {hole}, runs {runs:?}: prefill {prefill:.1e}, decode {decode:.1e}"
        );
        assert!(prefill < 4e-3 && decode < 4e-3, "{prefill}, {decode}");
        worst = (worst.0.max(prefill), worst.1.max(decode));
    }
    println!("worst: prefill {:.2e}, decode {:.2e}", worst.0, worst.1);
}

#[test]
fn a_long_prompt_behind_a_long_context() {
    let mut rng = Rng(52);
    let case = Case {
        head_dim: 64,
        kv_heads: 1,
        group: 3,
        page: 64,
        window: None,
        softcap: None,
        runs: vec![(0, 1500, 200)],
        hole: true,
    };
    let Some((prefill, decode)) = run(&case, &mut rng) else { return };
    assert!(prefill < 4e-3 && decode < 4e-3, "{prefill}, {decode}");
}

/// What is masked, and what is left out, is decided by tiles: here a tile's last or first token is the one that counts.
#[test]
fn windows_and_runs_that_begin_beside_a_tile() {
    let mut rng = Rng(53);
    for head_dim in [64, 128, 256] {
        // The first query sees the last token of a tile; and does not see it; the last one of a warp does not see the first.
        for (window, runs) in [(Some(40), (0, 102, 20)), (None, (0, 126, 40)), (Some(100), (0, 133, 40))] {
            let runs = vec![runs];
            let case = Case { head_dim, kv_heads: 1, group: 1, page: 16, window, softcap: None, runs, hole: false };
            let Some((prefill, decode)) = run(&case, &mut rng) else { return };
            assert!(prefill < 4e-3 && decode < 4e-3, "{head_dim}, {window:?}, {:?}: {prefill}, {decode}", case.runs);
        }
    }
}
