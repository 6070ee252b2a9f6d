//! Random numbers and the choice of tokens: the CPU's bits, and the tokens that they say.

mod support;

use engine_kernels::{Purpose, philox4x32, uniform};
use memtier::{Bytes, LaunchError, TableSpec};
use memtier_cuda::kernels::{philox, sample};
use support::{Rig, Rng, pool};

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

#[test]
fn random_bits_are_the_known_ones_and_the_cpus() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    // The lines `philox4x32 10` of `tests/kat_vectors` in Random123 1.14.0: counter and key, result.
    let known: [([u32; 6], [u32; 4]); 3] = [
        ([0; 6], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([!0; 6], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344, 0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    let mut rng = Rng(7);
    let mut inputs: Vec<[u32; 6]> = known.iter().map(|(input, _)| *input).collect();
    inputs.extend((0..3000).map(|_| [0; 6].map(|_| rng.below(1 << 32) as u32)));
    let from = span!(step, u32, inputs.concat());
    let mut out = span!(step, u32, vec![0; 4 * inputs.len()]);
    philox(step.on, &kernels, &mut out, &from).unwrap();
    let found = read!(step, u32, out);
    for (index, (_, expected)) in known.iter().enumerate() {
        assert_eq!(found[4 * index..4 * index + 4], *expected, "known answer {index}");
    }
    for ([a, b, c, d, k, l], found) in inputs.iter().zip(found.as_chunks::<4>().0) {
        assert_eq!(*found, philox4x32([*a, *b, *c, *d], [*k, *l]));
    }
}

/// How a sequence of the test is sampled.
#[derive(Clone, Copy)]
struct How {
    temperature: f32,
    top_p: f32,
    top_k: u32,
    seed: u64,
}

/// The token that `fraction` chooses of logits that are sorted already, and how near the fraction is to another token.
fn chosen(how: How, order: &[usize], logits: &[f32], fraction: f32) -> (u32, f64) {
    let largest = f64::from(logits[order[0]]);
    let weights: Vec<f64> =
        order.iter().map(|token| ((f64::from(logits[*token]) - largest) / f64::from(how.temperature)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let (mut kept, mut candidates) = (0.0, 0);
    while candidates < weights.len() {
        kept += weights[candidates];
        candidates += 1;
        if kept >= f64::from(how.top_p) * total {
            break;
        }
    }
    let (mut sum, at) = (0.0, f64::from(fraction) * kept);
    let mut near = f64::MAX;
    let mut token = None;
    for (index, weight) in weights[..candidates].iter().enumerate() {
        sum += weight;
        near = near.min((at - sum).abs() / kept);
        if at < sum && token.is_none() {
            token = Some(order[index]);
        }
    }
    (token.unwrap_or(order[0]) as u32, near)
}

#[test]
fn a_token_is_what_seed_and_position_say_of_its_logits() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut rng = Rng(44);
    // Sequences: greedy; top-k of one; a small top-p; and some that draw.
    let drawing = |seed| How { temperature: 2.5, top_p: 1.0, top_k: 5, seed };
    let hows = [
        How { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 3 },
        How { temperature: 1.0, top_p: 1.0, top_k: 1, seed: 4 },
        How { temperature: 1.0, top_p: 1e-6, top_k: 0, seed: 5 },
        drawing(7),
        drawing(7 << 32),
        How { temperature: 1.5, top_p: 0.8, top_k: 0, seed: 0x0123_4567_89ab_cdef },
        How { temperature: 1.0, top_p: 1.0, top_k: 100, seed: u64::MAX },
        // More than are ever kept.
        How { temperature: 3.0, top_p: 1.0, top_k: 1000, seed: 9 },
    ];
    for vocab in [1, 7, 300, 4000] {
        let mut step = engine.step(&mut stream).unwrap();
        let mut logits = rng.f32s(vocab);
        let largest = rng.below(vocab);
        logits[largest] = 5.0;
        if largest + 1 < vocab {
            // An equal one behind it is not the largest; what is no number is never chosen.
            logits[vocab - 1] = 5.0;
            logits[if largest == 0 { vocab / 2 } else { largest - 1 }] = f32::NAN;
        }
        let mut order: Vec<usize> = (0..vocab).filter(|token| !logits[*token].is_nan()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        // Tokens of the pass: each sequence at positions of its own. Logits are wanted of two thirds, in any order.
        let (tokens, count) = (450, 300);
        // One of them belongs to no sequence: greedy.
        let mut rows: Vec<u32> = (0..tokens).map(|_| rng.below(hows.len()) as u32).collect();
        rows[5] = hows.len() as u32;
        let positions: Vec<u32> = (0..tokens).map(|_| rng.below(1 << 31) as u32).collect();
        let mut picks: Vec<u32> = (0..count).map(|_| rng.below(tokens) as u32).collect();
        // Not there: greedy.
        picks[count - 1] = tokens as u32;
        picks[0] = 5;
        let all: Vec<f32> = (0..count).flat_map(|_| logits.clone()).collect();
        // Behind the last sequence are others' numbers.
        let how: Vec<f32> = hows.iter().flat_map(|how| [how.temperature, how.top_p]).chain([9.0, 1.0]).collect();
        let seeds: Vec<u32> =
            hows.iter().flat_map(|how| [how.top_k, how.seed as u32, (how.seed >> 32) as u32]).collect();
        let at = [span!(step, u32, picks), span!(step, u32, rows), span!(step, u32, positions)];
        let (all, how, seeds) = (span!(step, f32, all), span!(step, f32, how), span!(step, u32, seeds));
        let how = how.read().range(0..2 * hows.len()).unwrap();
        let mut sampled = span!(step, u32, vec![u32::MAX; count]);
        sample(step.on, &kernels, &mut sampled, &all, (how, &seeds), at.each_ref(), vocab).unwrap();
        let found = read!(step, u32, sampled);
        let (mut ties, mut others) = (0, 0);
        for (pick, found) in picks.iter().zip(found) {
            let Some(row) = rows.get(*pick as usize) else {
                assert_eq!(found, largest as u32, "a token that is not there");
                continue;
            };
            let Some(how) = hows.get(*row as usize).copied() else {
                assert_eq!(found, largest as u32, "a token of no sequence");
                continue;
            };
            if how.temperature == 0.0 {
                assert_eq!(found, largest as u32, "greedy, of {vocab}");
                continue;
            }
            let most = if how.top_k == 0 { 256 } else { (how.top_k as usize).min(256) };
            let fraction = uniform(how.seed, positions[*pick as usize] + 1, Purpose::Token);
            let (token, near) = chosen(how, &order[..most.min(order.len())], &logits, fraction);
            // Sums of f32 and of f64 may disagree where the fraction is at the edge of a token.
            match near < 1e-5 {
                true => ties += 1,
                false => assert_eq!(found, token, "of {vocab}, {fraction}"),
            }
            others += usize::from(found != largest as u32);
        }
        println!("of {vocab}: {others} of {count} are not the largest, {ties} at an edge");
        assert!(ties < 10 && (vocab < 7 || others > count / 6), "of {vocab}: {ties} at an edge, {others} drawn");
    }
}

#[test]
fn spans_that_do_not_belong_together_are_refused() {
    let Some(Rig { kernels, mut engine, mut stream, .. }) = rig() else { return };
    let mut step = engine.step(&mut stream).unwrap();
    let (logits, how, seeds) = (span!(step, f32, [0.0; 8]), span!(step, f32, [0.0; 4]), span!(step, u32, [0; 5]));
    let (picks, rows) = (span!(step, u32, [0; 2]), span!(step, u32, [0; 3]));
    let mut sampled = span!(step, u32, [0; 2]);
    let at = [&picks, &rows, &rows];
    let refused = sample(step.on, &kernels, &mut sampled, &logits, (&how, &seeds), at, 4).unwrap_err();
    assert_eq!(refused, LaunchError::Shape { what: "sample: seeds", expected: 6, found: 5 });
    let seeds = span!(step, u32, [0; 6]);
    let refused = sample(step.on, &kernels, &mut sampled, &logits, (&how, &seeds), [&picks, &rows, &picks], 4);
    assert_eq!(refused.unwrap_err(), LaunchError::Shape { what: "sample: positions", expected: 3, found: 2 });
    let mut out = span!(step, u32, [0; 4]);
    let refused = philox(step.on, &kernels, &mut out, &picks).unwrap_err();
    assert!(matches!(refused, LaunchError::Shape { .. }), "{refused}");
}
