//! A sampled answer is its prompt's and its seed's: the same alone and beside others, in whatever row and passes, guessed ahead, forked, ended and
//! asked again, with what is cached of it and without. On the CPU the logits are the same to the bit in all of these, so the tokens
//! must be.

use crate::common::{logits, tiny_file};
use crate::small::{answer_with, open, prompt, run};
use memtier::Bytes;
use memtier_engine::{Llm, ModelFile, Row, Sampling, Settings};
use memtier_model::write::TinyModel;

fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 6,
        max_seq_len: 256,
        prefill_chunk: 64,
        threads: 2,
        prefix_cache: false,
        ..Settings::default()
    }
}

fn warm(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed }
}

fn tiny_models(test: &str) -> Vec<(&'static str, crate::common::Temporary)> {
    [("llama", TinyModel::llama(5)), ("gemma3", TinyModel::gemma3(5))]
        .map(|(name, model)| (name, tiny_file(&format!("sampling-{test}-{name}"), model)))
        .into()
}

/// Ends a request; its answer.
fn take(llm: &mut Llm, row: Row, prompt: &[u32]) -> Vec<u32> {
    let tokens = llm.tokens(row).unwrap()[prompt.len()..].to_vec();
    llm.end(row).unwrap();
    tokens
}

const ANSWER: usize = 40;

/// Requests of all kinds, two of them the same but for their seeds.
fn requests() -> Vec<(Vec<u32>, Sampling)> {
    vec![
        (prompt(30, 1), warm(7)),
        (prompt(30, 1), warm(8)),
        (prompt(30, 1), warm(7 << 32)),
        (prompt(90, 2), Sampling { top_p: 0.9, ..warm(7) }),
        (prompt(17, 3), Sampling::GREEDY),
        (prompt(3, 4), Sampling { temperature: 1.5, top_k: 20, ..warm(u64::MAX) }),
    ]
}

#[test]
fn an_answer_is_the_same_alone_and_beside_others() {
    for (name, file) in tiny_models("beside") {
        let file = ModelFile::open(file.path()).unwrap();
        let requests = requests();
        let mut plain = open(&file, &settings());
        let alone: Vec<_> =
            requests.iter().map(|(prompt, sampling)| answer_with(&mut plain, prompt, ANSWER, *sampling)).collect();
        for (index, other) in [(0, 1), (0, 2), (1, 2)] {
            assert_ne!(alone[index], alone[other], "{name}: two seeds, one answer");
        }
        // Other rows, chunks, passes, and replayed ones.
        for (prefill_chunk, graphs, reversed) in [(64, 0, false), (7, 0, true), (64, 6, true)] {
            let mut llm = open(&file, &Settings { prefill_chunk, graphs, ..settings() });
            for late in [0, 3] {
                let mut order: Vec<usize> = (0..requests.len()).collect();
                if reversed {
                    order.reverse();
                }
                let mut rows = Vec::new();
                for index in order {
                    let (prompt, sampling) = &requests[index];
                    rows.push((index, llm.admit(prompt, ANSWER, *sampling).unwrap()));
                    for _ in 0..late {
                        llm.step(|_| ()).unwrap();
                    }
                }
                run(&mut llm);
                for (index, row) in rows {
                    assert_eq!(take(&mut llm, row, &requests[index].0), alone[index], "{name}, request {index}");
                }
            }
        }
    }
}

#[test]
fn rows_that_change_hands_take_the_next_ones_seed() {
    let [(_, file), ..] = &tiny_models("rows")[..] else { unreachable!() };
    let file = ModelFile::open(file.path()).unwrap();
    for graphs in [0, 2] {
        let mut llm = open(&file, &Settings { max_batch: 2, graphs, ..settings() });
        let prompt = prompt(20, 6);
        // One goes on while the row beside it serves five others.
        let other = llm.admit(&prompt, 100, warm(99)).unwrap();
        let said: Vec<Vec<u32>> = [1, 2, 3, 1, 2]
            .map(|seed| {
                let row = llm.admit(&prompt, 12, warm(seed)).unwrap();
                while llm.tokens(row).unwrap().len() < prompt.len() + 12 {
                    llm.step(|_| ()).unwrap();
                }
                take(&mut llm, row, &prompt)
            })
            .into();
        run(&mut llm);
        let long = take(&mut llm, other, &prompt);
        assert_eq!((&said[0], &said[1]), (&said[3], &said[4]));
        assert!(said[0] != said[1] && said[1] != said[2] && said[0] != said[2]);
        assert_eq!(answer_with(&mut llm, &prompt, 100, warm(99)), long);
        assert_eq!(answer_with(&mut llm, &prompt, 12, warm(3)), said[2]);
    }
}

#[test]
fn guesses_change_no_token_at_any_temperature() {
    for (name, file) in tiny_models("guesses") {
        let file = ModelFile::open(file.path()).unwrap();
        let (mut plain, mut guessing) = (open(&file, &settings()), open(&file, &Settings { draft: 4, ..settings() }));
        for temperature in [0.1, 0.4, 1.0, 3.0] {
            let (mut passes, mut fewer) = (0, 0);
            for seed in 0..4 {
                let sampling = Sampling { temperature, ..warm(seed) };
                // A prompt that repeats itself, so that there is much to guess from.
                let prompt = [prompt(24, seed as u32), prompt(24, seed as u32)].concat();
                let rows = [&mut plain, &mut guessing].map(|llm| {
                    let row = llm.admit(&prompt, 100, sampling).unwrap();
                    (row, run(llm))
                });
                let alone = take(&mut plain, rows[0].0, &prompt);
                assert_eq!(take(&mut guessing, rows[1].0, &prompt), alone, "{name} at {temperature}");
                passes += rows[0].1;
                fewer += rows[1].1;
            }
            println!("{name} at {temperature}: {passes} passes without guesses, {fewer} with");
            assert!(temperature > 0.1 || fewer < passes, "{name}: no guess was right, so none was tried");
        }
    }
}

#[test]
fn a_fork_goes_on_as_its_source_or_with_a_seed_of_its_own() {
    for (name, file) in tiny_models("forks") {
        let file = ModelFile::open(file.path()).unwrap();
        let mut llm = open(&file, &Settings { prefix_cache: true, ..settings() });
        let prompt = prompt(35, 9);
        let alone = answer_with(&mut llm, &prompt, ANSWER, warm(7));
        let row = llm.admit(&prompt, ANSWER, warm(7)).unwrap();
        let mut made = 0;
        while made < 9 {
            llm.step(|_| made += 1).unwrap();
        }
        let forks = [7, 8, 9].map(|seed| llm.fork(row, warm(seed)).unwrap());
        run(&mut llm);
        let said = forks.map(|fork| take(&mut llm, fork, &prompt));
        assert_eq!(take(&mut llm, row, &prompt), alone, "{name}: a fork changed its source");
        assert_eq!(said[0], alone, "{name}: the same seed went another way");
        for other in &said[1..] {
            assert!(other[..9] == alone[..9] && *other != alone, "{name}");
        }
        assert_ne!(said[1], said[2]);
        // A fork of another seed is what a request of that seed would be that has come as far.
        let so_far = [&*prompt, &alone[..9]].concat();
        let other = answer_with(&mut llm, &so_far, ANSWER - 9, warm(8));
        assert_eq!(other, said[1][9..], "{name}");
    }
}

/// A request that is ended in the middle, and whose tokens so far are asked again, answers as if nothing had been: what the blocks
/// were taken for meanwhile does not matter, nor whether they are computed anew, found, or restored from the second tier.
#[test]
fn an_answer_that_was_put_off_goes_on_as_it_would_have() {
    for (name, file) in tiny_models("put-off") {
        let file = ModelFile::open(file.path()).unwrap();
        let (first, second) = (prompt(100, 1), prompt(120, 2));
        let small = Settings { max_batch: 1, max_seq_len: 192, window_snapshots: 2, ..settings() };
        let mut plain = open(&file, &small);
        let alone = answer_with(&mut plain, &first, ANSWER, warm(7));
        for (prefix_cache, cold_blocks) in [(false, 0), (true, 0), (true, 64)] {
            let mut llm = open(&file, &Settings { prefix_cache, cold_blocks, ..small.clone() });
            let row = llm.admit(&first, ANSWER, warm(7)).unwrap();
            let mut made = 0;
            while made < 17 {
                llm.step(|_| made += 1).unwrap();
            }
            let so_far = llm.tokens(row).unwrap().to_vec();
            llm.end(row).unwrap();
            // The pool has room for one of them.
            answer_with(&mut llm, &second, 60, warm(3));
            let before = llm.reused_tokens();
            let rest = answer_with(&mut llm, &so_far, ANSWER - made, warm(7));
            assert_eq!(
                [&so_far[first.len()..], &rest].concat(),
                alone,
                "{name}, cache {prefix_cache}, cold {cold_blocks}"
            );
            let reused = llm.reused_tokens() - before;
            println!("{name}, cache {prefix_cache}, cold {cold_blocks}: {reused} of {} tokens reused", so_far.len());
            assert!(cold_blocks == 0 || reused >= 96, "{name}: {reused} tokens came back from the second tier");
            // Found whole, where it fits beside nothing else.
            assert_eq!(answer_with(&mut llm, &first, ANSWER, warm(7)), alone, "{name}");
        }
    }
}

/// What many seeds choose first has the probabilities that the logits say.
#[test]
fn first_tokens_of_many_seeds_follow_the_logits() {
    let [(_, file), ..] = &tiny_models("many")[..] else { unreachable!() };
    let file = ModelFile::open(file.path()).unwrap();
    let mut llm = open(&file, &Settings { max_batch: 64, ..settings() });
    let prompt = prompt(5, 3);
    let vocab = llm.arch().vocab();
    let all = logits(&mut llm, &prompt);
    let last = &all[all.len() - vocab..];
    let (top_k, temperature) = (8, 0.7);
    let mut order: Vec<usize> = (0..vocab).collect();
    order.sort_by(|a, b| last[*b].total_cmp(&last[*a]));
    order.truncate(top_k);
    let weight = |token: usize| (f64::from(last[token] - last[order[0]]) / temperature).exp();
    let total: f64 = order.iter().map(|token| weight(*token)).sum();
    let draws = 4096u64;
    let mut counts = vec![0u32; vocab];
    for first in (0..draws).step_by(64) {
        let rows: Vec<Row> = (first..first + 64)
            .map(|seed| {
                let sampling = Sampling { temperature: temperature as f32, top_k: top_k as u32, ..warm(seed) };
                llm.admit(&prompt, 1, sampling).unwrap()
            })
            .collect();
        run(&mut llm);
        rows.into_iter().for_each(|row| counts[take(&mut llm, row, &prompt)[0] as usize] += 1);
    }
    let found: u32 = order.iter().map(|token| counts[*token]).sum();
    assert_eq!(u64::from(found), draws, "only the likeliest are chosen");
    let statistic: f64 = order
        .iter()
        .map(|token| {
            let expected = weight(*token) / total * draws as f64;
            (f64::from(counts[*token]) - expected).powi(2) / expected
        })
        .sum();
    // Seven degrees of freedom: 30 is passed once in ten thousand.
    assert!(statistic < 30.0, "chi-square {statistic:.1}");
}
