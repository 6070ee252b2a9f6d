//! Paged decode attention against f64 on the CPU, over random shapes.

mod support;

use memtier::{Blocks, Bytes, Step, TableSpec, Tokens, bf16};
use memtier_cuda::kernels::{DecodeShape, DecodeWork, PagedKv, paged_decode};
use support::{Rig, Rng, ToyView, distance, pool, rounds, wide};

/// One query of one head in f64. `key` and `value` give a token's rows, or `None` for a hole.
fn attend<'k>(
    query: &[bf16],
    length: usize,
    shape: &DecodeShape,
    key: impl Fn(usize) -> Option<&'k [bf16]>,
    value: impl Fn(usize) -> Option<&'k [bf16]>,
) -> Vec<f64> {
    let start = shape.window.map_or(0, |window| length.saturating_sub(window));
    let score = |key: &[bf16]| {
        let product: f64 = wide(query).zip(wide(key)).map(|(q, k)| q * k).sum::<f64>() * f64::from(shape.scale);
        shape.softcap.map_or(product, |cap| f64::from(cap) * (product / f64::from(cap)).tanh())
    };
    let scores: Vec<Option<f64>> = (start..length).map(|token| key(token).map(&score)).collect();
    let most = scores.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut out = vec![0.0; query.len()];
    let mut weight = 0.0;
    for (token, score) in (start..length).zip(scores) {
        let (Some(score), Some(value)) = (score, value(token)) else { continue };
        let p = (score - most).exp();
        weight += p;
        out.iter_mut().zip(wide(value)).for_each(|(out, v)| *out += p * v);
    }
    if weight > 0.0 {
        out.iter_mut().for_each(|out| *out /= weight);
    }
    out
}

struct Case {
    head_dim: usize,
    kv_heads: usize,
    group: usize,
    page: usize,
    shape: DecodeShape,
    lengths: Vec<usize>,
    holes: bool,
}

/// Runs a case twice and returns the distance of the first run; the bits of the two are compared.
fn run(case: &Case, rng: &mut Rng) -> Option<f64> {
    let Case { head_dim, kv_heads, group, page, shape, lengths, holes } = case;
    let (head_dim, kv_heads, page, heads) = (*head_dim, *kv_heads, *page, kv_heads * group);
    let batch = lengths.len();
    let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
    let columns = longest.div_ceil(page) + 1;
    let layer = 2 * kv_heads * page * head_dim;
    let kv = PagedKv { layer_base: layer, kv_heads, head_dim, packed: None };
    let shape = DecodeShape { heads, ..*shape };
    let partial_units = shape.partial_units(batch, head_dim).unwrap();
    let scratch = Bytes::new((partial_units * 4 + 4 * batch * heads * head_dim * 2 + (1 << 20)) as u64);
    let blocks: usize = lengths.iter().map(|length| length.div_ceil(page)).sum();
    // The table has its rows in another order than the batch, and one more.
    let table_rows: Vec<u32> = (0..batch as u32).rev().collect();
    let spec = TableSpec { rows: batch + 1, columns };
    let Rig { kernels, mut engine, mut stream, .. } = Rig::new(scratch, pool(page, 2 * layer, blocks + 1), spec)?;
    let handle = engine.bundle().kv.handle();
    let mut tickets = Vec::new();
    let mut contents: Vec<Vec<Option<Vec<bf16>>>> = Vec::new();
    for length in lengths {
        let mut ticket = handle.open(Tokens::new((columns * page) as u64));
        ticket.push(Blocks::new(length.div_ceil(page) as u64)).unwrap();
        let mut pages: Vec<_> = (0..length.div_ceil(page)).map(|_| Some(rng.bf16s(2 * layer))).collect();
        if *holes {
            for (index, page) in pages.iter_mut().enumerate().filter(|_| true) {
                if rng.below(3) == 0 {
                    ticket.evict(index);
                    *page = None;
                }
            }
        }
        tickets.push(ticket);
        contents.push(pages);
    }
    let q = rng.bf16s(batch * heads * head_dim);

    let mut step = engine.step(&mut stream).unwrap();
    let on = step.on;
    for (sequence, ticket) in tickets.iter_mut().enumerate() {
        step.buffers.table.set(on, table_rows[sequence] as usize, ticket).unwrap();
        for (index, page) in contents[sequence].iter().enumerate() {
            let Some(page) = page else { continue };
            let mut block = step.buffers.kv.block_mut(ticket, index).unwrap();
            on.write(&mut block, page).unwrap();
        }
    }
    let Step { buffers: ToyView { kv: pool, table, work, .. }, scratch, .. } = &mut step;
    let mut q_span = scratch.take::<bf16>(q.len()).unwrap();
    on.write(&mut q_span, &q).unwrap();
    let mut take = |values: &[u32]| {
        let mut span = scratch.take::<u32>(values.len()).unwrap();
        on.write(&mut span, values).unwrap();
        span
    };
    let rows = take(&table_rows);
    let lengths_span = take(&lengths.iter().map(|length| *length as u32).collect::<Vec<_>>());
    let mut partial = scratch.take::<f32>(partial_units).unwrap();
    let mut out = scratch.take::<bf16>(q.len()).unwrap();
    let mut found = [vec![bf16::ZERO; q.len()], vec![bf16::ZERO; q.len()]];
    for found in &mut found {
        on.write(&mut partial, &vec![f32::NAN; partial_units]).unwrap();
        on.write(&mut out, &vec![bf16::NAN; q.len()]).unwrap();
        let decode_work = DecodeWork { partial: &mut partial, arrived: &mut work.arrived };
        let inputs = [&rows, &lengths_span];
        let slab = pool.slab();
        paged_decode(on, &kernels, &mut out, decode_work, &q_span, &slab, table.ids(), inputs, (kv, shape)).unwrap();
        on.read::<bf16>(&out, found).unwrap();
    }
    let bits = |values: &[bf16]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(bits(&found[0]) == bits(&found[1]), "the same inputs gave other bits");

    let mut expected = Vec::new();
    for sequence in 0..batch {
        for head in 0..heads {
            let kv_head = head / group;
            let row = |part: usize| {
                let pages = &contents[sequence];
                move |token: usize| {
                    let page_of = pages[token / page].as_ref()?;
                    Some(&page_of[layer + (part * page + token % page) * head_dim..][..head_dim])
                }
            };
            let query = &q[(sequence * heads + head) * head_dim..][..head_dim];
            expected.extend(attend(query, lengths[sequence], &shape, row(kv_head), row(kv_heads + kv_head)));
        }
    }
    let mut counters = vec![1u32; 4096];
    on.read::<u32>(&work.arrived, &mut counters).unwrap();
    assert!(counters.iter().all(|counter| *counter == 0), "a launch left counters behind");
    Some(distance(wide(&found[0]), &expected))
}

fn shape(head_dim: usize, shares: usize) -> DecodeShape {
    let scale = 1.0 / (head_dim as f32).sqrt();
    DecodeShape { heads: 0, scale, window: None, softcap: None, shares }
}

#[test]
fn decode_over_random_shapes() {
    let mut rng = Rng(11);
    let mut worst: f64 = 0.0;
    for index in 0..rounds(24, 12) {
        let head_dim = [64, 128, 256][index % 3];
        let mut it = shape(head_dim, rng.pick(&[1, 2, 3, 7, 16]));
        it.window = rng.pick(&[None, None, Some(1), Some(64), Some(100), Some(513)]);
        it.softcap = rng.pick(&[None, None, Some(20.0)]);
        let batch = 1 + rng.below(5);
        let case = Case {
            head_dim,
            kv_heads: rng.pick(&[1, 2, 3, 8]),
            group: [1, 2, 3, 4, 5, 8, 9, 16][index % 8],
            page: rng.pick(&[16, 32, 64, 128]),
            shape: it,
            lengths: (0..batch).map(|_| rng.pick(&[0, 1, 15, 16, 17, 63, 64, 65, 200, 511, 777])).collect(),
            holes: rng.below(3) == 0,
        };
        let Some(far) = run(&case, &mut rng) else { return };
        let Case { kv_heads, group, page, shape, lengths, holes, .. } = &case;
        println!(
            "head_dim {head_dim}, {kv_heads} kv heads x {group}, page {page}, lengths {lengths:?}, window {:?}, softcap {:?}, \
             {} shares, holes {holes}: {far:.1e}",
            shape.window, shape.softcap, shape.shares
        );
        assert!(far < 4e-3, "{far}");
        worst = worst.max(far);
    }
    println!("worst of 24: {worst:.2e}");
}

#[test]
fn sequences_without_tokens_or_pages_get_zeros() {
    let mut rng = Rng(12);
    for shares in [1, 4] {
        let case = Case {
            head_dim: 64,
            kv_heads: 3,
            group: 3,
            page: 16,
            shape: shape(64, shares),
            lengths: vec![0, 0, 1],
            holes: false,
        };
        let Some(far) = run(&case, &mut rng) else { return };
        assert!(far < 4e-3, "{far}");
    }
}

#[test]
fn a_long_sequence_in_many_shares() {
    let mut rng = Rng(13);
    let case = Case {
        head_dim: 128,
        kv_heads: 2,
        group: 4,
        page: 64,
        shape: shape(128, 66),
        lengths: vec![20_001, 7],
        holes: false,
    };
    let Some(far) = run(&case, &mut rng) else { return };
    assert!(far < 4e-3, "{far}");
}

/// Each has its own number of shares, and its own place for their partial results.
#[test]
fn sequences_of_very_different_lengths_in_one_batch() {
    let mut rng = Rng(14);
    for head_dim in [64, 256].into_iter().take(rounds(2, 1)) {
        let case = Case {
            head_dim,
            kv_heads: 2,
            group: 2,
            page: 64,
            shape: shape(head_dim, 16),
            lengths: vec![900, 6000, 1, 2500, 1100, 300, 4000, 1700],
            holes: false,
        };
        let Some(far) = run(&case, &mut rng) else { return };
        assert!(far < 4e-3, "{far}");
    }
}
