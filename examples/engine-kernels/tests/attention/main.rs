//! Paged attention against f64, and its independence of the batch.

#[path = "../common/mod.rs"]
mod common;
mod world;

use common::{Rng, bits};
use engine_kernels::{
    AttentionParams, HOLE, Isa, KernelError, KvCache, KvCell, KvFormat, KvSequence, KvShape, Query, Ring, RingOf,
    Sinks, Threads, Views, attend, attend_with, f32_to_f16, kv_write,
};
use world::{World, hadamard};

fn params(heads: usize, head_dim: usize, window: Option<u32>) -> AttentionParams {
    AttentionParams { heads, scale: 1.0 / (head_dim as f32).sqrt(), window, softcap: None }
}

fn all_positions(sequence: u32, len: u32) -> Vec<Query> {
    (0..len).map(|position| Query { sequence, position }).collect()
}

#[test]
fn attention_agrees_with_f64() {
    let mut rng = Rng::new(30);
    let threads = Threads::new(2).unwrap();
    // (heads, kv heads, head dim, block tokens)
    let shapes = [(9, 3, 64, 16), (4, 1, 256, 32), (4, 4, 128, 16), (8, 1, 96, 32), (6, 2, 80, 48), (30, 1, 16, 16)];
    let others = KvFormat::ALL.into_iter().filter(|format| *format != KvFormat::F16);
    let others = others.map(|format| (8, 1, 96, 32, format));
    let shapes = shapes.map(|(heads, kv_heads, head_dim, tokens)| (heads, kv_heads, head_dim, tokens, KvFormat::F16));
    for (heads, kv_heads, head_dim, block_tokens, format) in shapes.into_iter().chain(others) {
        let shape = KvShape { kv_heads, head_dim, block_tokens, format };
        for isa in Isa::available() {
            let mut world = World::random(&mut rng, shape, &[1, 75, 130, 16], isa);
            // A hole at the start, one in the middle, and a sequence with nothing but holes.
            world.tables[1][0] = HOLE;
            world.tables[2][1] = HOLE;
            world.tables[3][0] = HOLE;
            let mut queries = vec![Query { sequence: 0, position: 0 }, Query { sequence: 3, position: 15 }];
            queries.extend((60..75).map(|position| Query { sequence: 1, position }));
            queries.extend((0..5).map(|position| Query { sequence: 1, position }));
            queries.extend((100..130).step_by(7).map(|position| Query { sequence: 2, position }));
            // Scores of a few units: larger ones would only show how f32 rounds them.
            let q: Vec<f32> = (0..queries.len() * heads * head_dim).map(|_| 0.3 * rng.unit()).collect();
            for window in [None, Some(20), Some(1), Some(1000)] {
                let mut params = params(heads, head_dim, window);
                params.softcap = (window == Some(1000)).then_some(3.0);
                let found = world.attend(&threads, isa, params, &queries, &q);
                let row = heads * head_dim;
                for ((query, q), found) in queries.iter().zip(q.chunks_exact(row)).zip(found.chunks_exact(row)) {
                    for (found, expected) in found.iter().zip(world.reference(params, *query, q)) {
                        let error = (f64::from(*found) - expected).abs();
                        assert!(error < 3e-6, "{shape:?} {isa:?} {window:?} {query:?}: {found} for {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_token_gets_the_same_bits_in_any_chunk_batch_and_pool() {
    let mut rng = Rng::new(31);
    let pools: Vec<Threads> = (1..=4).map(|count| Threads::new(count).unwrap()).collect();
    let shapes = [
        (9, 3, 64, 16, KvFormat::F16),
        (4, 1, 256, 32, KvFormat::F16),
        (5, 1, 80, 16, KvFormat::Fp8),
        (9, 3, 64, 16, KvFormat::Q8_0),
        (9, 3, 64, 16, KvFormat::Nvfp4),
        (5, 1, 64, 32, KvFormat::Q4_0),
        (30, 1, 256, 16, KvFormat::Q4_0Rotated),
        (4, 2, 96, 16, KvFormat::Q4_0Rotated),
        (5, 1, 80, 16, KvFormat::Bf16),
    ];
    for (heads, kv_heads, head_dim, block_tokens, format) in shapes {
        let shape = KvShape { kv_heads, head_dim, block_tokens, format };
        let row = heads * head_dim;
        let mut world = World::random(&mut rng, shape, &[150, 90], Isa::detect());
        world.tables[0][2] = HOLE;
        let mut queries = all_positions(0, 150);
        queries.extend(all_positions(1, 90));
        let q = rng.activations(queries.len() * row);
        for window in [None, Some(37)] {
            let params = params(heads, head_dim, window);
            let alone: Vec<u32> = queries
                .iter()
                .zip(q.chunks_exact(row))
                .flat_map(|(query, q)| bits(&world.attend(&pools[0], Isa::detect(), params, &[*query], q)))
                .collect();
            for isa in Isa::available() {
                for chunk in [1, 3, 8, 64, 240] {
                    let mut found = Vec::new();
                    for (queries, q) in queries.chunks(chunk).zip(q.chunks(chunk * row)) {
                        found.extend(bits(&world.attend(&pools[chunk % 4], isa, params, queries, q)));
                    }
                    assert_eq!(found.len(), alone.len());
                    assert!(found == alone, "{shape:?} {isa:?} chunks of {chunk}, window {window:?}");
                }
            }
        }
    }
}

#[test]
fn later_tokens_and_unwritten_cells_change_nothing() {
    let mut rng = Rng::new(32);
    let threads = Threads::new(1).unwrap();
    let shape = KvShape { kv_heads: 1, head_dim: 32, block_tokens: 16, format: KvFormat::F16 };
    let mut world = World::random(&mut rng, shape, &[70], Isa::detect());
    let params = params(2, 32, Some(30));
    let query = [Query { sequence: 0, position: 40 }];
    let q = rng.activations(64);
    let before = bits(&world.attend(&threads, Isa::detect(), params, &query, &q));
    // Everything that position 40 must not see becomes NaN: later positions, and those before the window.
    for position in (0..=10).chain(41..70) {
        let cell = world.cell(&world.tables[0].clone(), position);
        let start = world.base + cell.block as usize * world.stride;
        for dim in 0..32 {
            world.slab[start + dim * 16 + cell.slot as usize] = 0x7e00;
            world.slab[start + 32 * 16 + cell.slot as usize * 32 + dim] = 0xfe00;
        }
    }
    for isa in Isa::available() {
        assert_eq!(bits(&world.attend(&threads, isa, params, &query, &q)), before, "{isa:?}");
    }
}

#[test]
fn sinks_that_left_the_window_are_seen_with_queries_of_their_own() {
    let mut rng = Rng::new(35);
    let threads = Threads::new(2).unwrap();
    let (heads, count) = (6, 130);
    for (format, sinks) in [(KvFormat::F16, 4), (KvFormat::F16, 20), (KvFormat::Q4_0, 16), (KvFormat::Q4_0Rotated, 16)]
    {
        let shape = KvShape { kv_heads: 2, head_dim: 64, block_tokens: 16, format };
        let mut world = World::random(&mut rng, shape, &[count as usize], Isa::detect());
        // What neither the sinks nor any later window reach is gone.
        (2..4).for_each(|block| world.tables[0][block] = HOLE);
        let params = params(heads, 64, Some(40));
        let row = heads * 64;
        let queries: Vec<Query> =
            all_positions(0, count).into_iter().filter(|query| query.position < 32 || query.position >= 103).collect();
        let q: Vec<f32> = (0..2 * queries.len() * row).map(|_| 0.3 * rng.unit()).collect();
        let (q, q_sinks) = q.split_at(queries.len() * row);
        let sequences = [KvSequence { blocks: &world.tables[0], tokens: count }];
        let mut all = Vec::new();
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; q.len()];
            let seen = Views { sinks: Some(Sinks { count: sinks, q: q_sinks }), ring: None };
            attend_with(&threads, isa, params, seen, world.cache(), &sequences, &queries, q, &mut out).unwrap();
            for (index, query) in queries.iter().enumerate() {
                let rows = index * row..(index + 1) * row;
                let sinks = (sinks as usize, &q_sinks[rows.clone()]);
                let expected = world.reference_with_sinks(params, *query, &q[rows.clone()], sinks);
                for (found, expected) in out[rows].iter().zip(expected) {
                    assert!(
                        (f64::from(*found) - expected).abs() < 3e-6,
                        "{format:?} {query:?}: {found} for {expected}"
                    );
                }
            }
            all.push(bits(&out));
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{format:?}: levels differ");
    }
}

#[test]
fn the_latest_tokens_are_seen_in_f16_and_the_others_as_they_were_rounded() {
    let mut rng = Rng::new(36);
    let threads = Threads::new(2).unwrap();
    let (heads, count, latest) = (6, 130u32, 20u32);
    for format in [KvFormat::Q4_0, KvFormat::Q4_0Rotated, KvFormat::Q8_0, KvFormat::Nvfp4] {
        let shape = KvShape { kv_heads: 2, head_dim: 64, block_tokens: 16, format };
        let world = World::random(&mut rng, shape, &[count as usize], Isa::detect());
        // The ring has three slots more than are seen, and position 60 is its first.
        let (start, ring) = (60, KvShape { block_tokens: 32, format: KvFormat::F16, ..shape });
        let units = ring.block_units().unwrap();
        let mut slab = vec![0x7e01; 3 * units];
        let row = heads * 64;
        let q: Vec<f32> = (0..count as usize * row).map(|_| 0.3 * rng.unit()).collect();
        for isa in Isa::available() {
            for position in start..count {
                // Written when its turn comes, over what is no longer seen.
                let cell = [KvCell { block: 1, slot: position % 32 }];
                let of = |rows: &[f32]| rows[position as usize * 128..][..128].to_vec();
                let (keys, values) = (of(&world.keys[0]), of(&world.values[0]));
                kv_write(&threads, isa, &mut slab, 0, units, ring, &cell, &keys, &values).unwrap();
                if position % 7 > 0 {
                    continue;
                }
                for window in [None, Some(50), Some(9)] {
                    let params = params(heads, 64, window);
                    let sequences = [KvSequence { blocks: &world.tables[0], tokens: position + 1 }];
                    let cache = KvCache { slab: &slab, base: 0, stride: units, shape: ring };
                    let rings = [RingOf { block: &[1], start }];
                    let seen = Views { sinks: None, ring: Some(Ring { cache, latest, sequences: &rings }) };
                    let query = Query { sequence: 0, position };
                    let q = &q[position as usize * row..][..row];
                    let mut out = vec![f32::NAN; row];
                    attend_with(&threads, isa, params, seen, world.cache(), &sequences, &[query], q, &mut out).unwrap();
                    let first = (position + 1 - latest).max(start) as usize;
                    let expected = world.reference_with_ring(params, query, q, first);
                    for (found, expected) in out.iter().zip(expected) {
                        let off = (f64::from(*found) - expected).abs();
                        assert!(off < 3e-6, "{format:?} {isa:?} {position} {window:?}: {found} for {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_format_keeps_rows_as_near_as_its_steps() {
    let mut rng = Rng::new(34);
    for format in KvFormat::ALL {
        let shape = KvShape { kv_heads: 2, head_dim: 96, block_tokens: 32, format };
        for isa in Isa::available() {
            let world = World::random(&mut rng, shape, &[70], isa);
            for (half, rows) in [&world.keys[0], &world.values[0]].into_iter().enumerate() {
                let mut rows = rows.clone();
                if format == KvFormat::Q4_0Rotated {
                    // What is rounded is the rotated row.
                    for row in rows.chunks_exact_mut(96) {
                        let plain = row.to_vec();
                        let turned = |dim| hadamard(96, dim, |other| f64::from(plain[other])) as f32;
                        row.iter_mut().enumerate().for_each(|(dim, x)| *x = turned(dim));
                    }
                }
                for (at, value) in rows.iter().enumerate() {
                    let (position, head, dim) = (at / 192, at / 96 % 2, at % 96);
                    let found = world.stored(half, 0, position, head, dim);
                    let group = match format {
                        KvFormat::Fp8 => at - dim..at - dim + 96,
                        KvFormat::Nvfp4 => at / 16 * 16..at / 16 * 16 + 16,
                        _ => at / 32 * 32..at / 32 * 32 + 32,
                    };
                    let most = rows[group].iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    let step = match format {
                        KvFormat::F16 => value.abs() / 1024.0,
                        KvFormat::Bf16 => value.abs() / 128.0,
                        // Relative, down to the smallest step.
                        KvFormat::Fp8 => (value.abs() / 8.0).max(most / 448.0 / 512.0),
                        KvFormat::Q8_0 => most / 127.0,
                        // From 4 to 6, of which the scale may be off by a sixteenth.
                        KvFormat::Nvfp4 => most / 3.0 * 1.07,
                        KvFormat::Q4_0 => most / 8.0 * 1.01,
                        // Nine steps, of which the shorter side has seven.
                        KvFormat::Q4_0Rotated => most * 2.0 / 9.0 * 1.01,
                    };
                    let off = (found - f64::from(*value)).abs();
                    // A whole step at the end of the shorter side of q4_0, else half of one.
                    let steps = if matches!(format, KvFormat::Q4_0 | KvFormat::Q4_0Rotated) { 1.0 } else { 0.51 };
                    assert!(
                        off <= steps * f64::from(step) + f64::from(value.abs()) / 2048.0 + 1e-6,
                        "{format:?} {isa:?} {at}: {found} for {value}"
                    );
                }
            }
        }
    }
}

#[test]
fn rotated_rows_survive_a_large_dimension() {
    let (heads, count) = (6, 130);
    let threads = Threads::new(2).unwrap();
    for times in [8.0, 30.0] {
        let off = |format| {
            let mut rng = Rng::new(37);
            let shape = KvShape { kv_heads: 2, head_dim: 64, block_tokens: 16, format };
            let world = World::with_outlier(&mut rng, shape, &[count as usize], Isa::detect(), times);
            let queries = all_positions(0, count);
            let q: Vec<f32> = (0..queries.len() * heads * 64).map(|_| 0.1 * rng.unit()).collect();
            let out = world.attend(&threads, Isa::detect(), params(heads, 64, None), &queries, &q);
            let row = heads * 64;
            let errors =
                queries.iter().zip(q.chunks_exact(row)).zip(out.chunks_exact(row)).flat_map(|((query, q), out)| {
                    // From the rows as they were written.
                    let expected = world.reference_with_ring(params(heads, 64, None), *query, q, 0);
                    out.iter()
                        .zip(expected)
                        .map(|(out, expected)| (f64::from(*out) - expected).powi(2))
                        .collect::<Vec<_>>()
                });
            errors.sum::<f64>().sqrt()
        };
        let (plain, rotated) = (off(KvFormat::Q4_0), off(KvFormat::Q4_0Rotated));
        println!("a dimension {times} times the others: off by {plain:.3} as they are, by {rotated:.3} rotated");
        assert!(rotated * 1.5 < plain, "{times}: {rotated} rotated, {plain} as they are");
    }
}

#[test]
fn writes_round_and_land_in_their_cells() {
    let threads = Threads::new(2).unwrap();
    let shape = KvShape { kv_heads: 2, head_dim: 16, block_tokens: 16, format: KvFormat::F16 };
    let elements = shape.block_units().unwrap();
    let mut rng = Rng::new(33);
    let cells = [
        KvCell { block: 2, slot: 5 },
        KvCell { block: HOLE, slot: 99 },
        KvCell { block: 0, slot: 15 },
        KvCell { block: 2, slot: 5 },
    ];
    let (keys, values) = (rng.activations(4 * 32), rng.activations(4 * 32));
    for isa in Isa::available() {
        let mut slab = vec![0u16; 3 * elements];
        kv_write(&threads, isa, &mut slab, 0, elements, shape, &cells, &keys, &values).unwrap();
        let mut written = 0;
        for (row, cell) in [(2, cells[2]), (3, cells[3])] {
            for head in 0..2 {
                for dim in 0..16 {
                    let block = &slab[cell.block as usize * elements..];
                    let source = row * 32 + head * 16 + dim;
                    assert_eq!(block[(head * 16 + dim) * 16 + cell.slot as usize], f32_to_f16(keys[source]));
                    let value = block[elements / 2 + (head * 16 + cell.slot as usize) * 16 + dim];
                    assert_eq!(value, f32_to_f16(values[source]));
                    written += 2;
                }
            }
        }
        assert_eq!(slab.iter().filter(|cell| **cell != 0).count(), written);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let threads = Threads::new(1).unwrap();
    let isa = Isa::detect();
    let shape = KvShape { kv_heads: 1, head_dim: 16, block_tokens: 16, format: KvFormat::F16 };
    let elements = shape.block_units().unwrap();
    let slab = vec![0u16; 2 * elements];
    let cache = KvCache { slab: &slab, base: 0, stride: elements, shape };
    let params = params(1, 16, None);
    let (q, mut out) = ([1.0; 16], [0.0; 16]);
    let mut run = |cache, blocks: &[u32], tokens, query| {
        attend(&threads, isa, params, cache, &[KvSequence { blocks, tokens }], &[query], &q, &mut out)
    };
    let query = |sequence, position| Query { sequence, position };
    assert_eq!(run(cache, &[1], 16, query(0, 15)), Ok(()));
    let found = run(cache, &[1], 16, query(0, 16));
    assert_eq!(found, Err(KernelError::Index { what: "position", limit: 16, found: 16 }));
    let found = run(cache, &[1], 16, query(1, 0));
    assert_eq!(found, Err(KernelError::Index { what: "sequence", limit: 1, found: 1 }));
    let found = run(cache, &[2], 16, query(0, 0));
    assert_eq!(found, Err(KernelError::Index { what: "block", limit: 2, found: 2 }));
    let found = run(cache, &[1], 17, query(0, 0));
    assert_eq!(found, Err(KernelError::Shape { what: "block table", expected: 2, found: 1 }));
    let overlapping = KvCache { stride: elements - 1, ..cache };
    assert!(matches!(run(overlapping, &[1], 16, query(0, 0)), Err(KernelError::Shape { .. })));
    let beyond = KvCache { base: usize::MAX, ..cache };
    assert!(matches!(run(beyond, &[0], 16, query(0, 0)), Err(KernelError::Index { .. })));
    let narrow = KvCache { shape: KvShape { format: KvFormat::Q4_0, ..shape }, ..cache };
    let refused = KernelError::Multiple { what: "head dimension", of: 32, found: 16 };
    assert_eq!(run(narrow, &[0], 16, query(0, 0)), Err(refused));
    let odd = KvCache { shape: KvShape { block_tokens: 24, ..shape }, ..cache };
    assert!(matches!(run(odd, &[0], 16, query(0, 0)), Err(KernelError::Multiple { .. })));
}
