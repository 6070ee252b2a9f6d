//! Answers do not depend on how they came about: with and without a cached prefix, forked or alone, guessed ahead or not; and all
//! blocks come back.

use crate::common::{GEMMA3, RealModel, SMOLLM2, tiny_file};
use crate::small::{answer, open, prompt, run, tiny_models};
use memtier::Bytes;
use memtier_engine::{Llm, ModelFile, Row, Sampling, Settings};
use memtier_model::write::TinyModel;

fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 4,
        max_seq_len: 256,
        prefill_chunk: 32,
        threads: 2,
        ..Settings::default()
    }
}

/// Blocks that neither are free nor can be had from the cache.
fn kept(llm: &Llm) -> u64 {
    let held = llm.memory_report().pools[0].held;
    held.count() - llm.prefix_stats().map_or(0, |stats| stats.reclaimable.count())
}

/// Tells whether what is cached is used, and answers with it as without.
fn a_cached_prefix_changes_no_token(file: &ModelFile, prompts: &[Vec<u32>], length: usize, window_snapshots: usize) {
    let plain = Settings { prefix_cache: false, ..settings() };
    let mut plain = open(file, &Settings { max_seq_len: 1024, ..plain });
    let mut cached = open(file, &Settings { max_seq_len: 1024, window_snapshots, ..settings() });
    for prompt in prompts {
        let alone = answer(&mut plain, prompt, length);
        let before = cached.reused_tokens();
        assert_eq!(answer(&mut cached, prompt, length), alone, "cold");
        let cold = cached.reused_tokens();
        assert_eq!(answer(&mut cached, prompt, length), alone, "warm");
        let warm = cached.reused_tokens();
        assert!(warm - cold >= (prompt.len() as u64 - 1) / 16 * 16, "{before} {cold} {warm}: reused");
        // A conversation goes on: prompt, answer, and more.
        let mut longer = prompt.clone();
        longer.extend(&alone);
        longer.extend(&prompts[0][..7]);
        let alone = answer(&mut plain, &longer, length);
        assert_eq!(answer(&mut cached, &longer, length), alone, "longer");
        assert!(cached.reused_tokens() > warm, "the conversation's blocks were found");
    }
    assert_eq!(kept(&cached), 0);
}

#[test]
fn tiny_models_answer_alike_with_a_cached_prefix() {
    for (name, model) in tiny_models() {
        let file = tiny_file(&format!("prefix-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let prompts: Vec<_> = (1..6).map(|index| prompt(23 * index as usize, index)).collect();
        a_cached_prefix_changes_no_token(&file, &prompts, 20, 4);
    }
}

fn real_model_answers_alike(model: RealModel) {
    let Some(path) = model.path() else { return };
    let file = ModelFile::open(path).unwrap();
    // Gemma's window is 512 tokens: one prompt is longer.
    a_cached_prefix_changes_no_token(&file, &[prompt(40, 1), prompt(600, 2)], 16, 4);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_answers_alike_with_a_cached_prefix() {
    real_model_answers_alike(SMOLLM2);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_answers_alike_with_a_cached_prefix() {
    real_model_answers_alike(GEMMA3);
}

#[test]
fn without_a_copy_of_the_window_nothing_is_found_and_nothing_wrong() {
    let file = tiny_file("no-copies", TinyModel::gemma3(5));
    let file = ModelFile::open(file.path()).unwrap();
    let (mut plain, mut cached) = (
        open(&file, &Settings { prefix_cache: false, ..settings() }),
        open(&file, &Settings { window_snapshots: 0, ..settings() }),
    );
    let prompt = prompt(100, 3);
    let alone = answer(&mut plain, &prompt, 20);
    for _ in 0..2 {
        assert_eq!(answer(&mut cached, &prompt, 20), alone);
    }
    assert_eq!(cached.reused_tokens(), 0);
}

/// Three forks in the middle of an answer, and the answer itself, are the answer alone.
fn forks_answer_as_if_alone(name: &str, file: &ModelFile, lengths: &[usize], answered: usize) {
    let settings = Settings { max_seq_len: 1024, ..settings() };
    let mut llm = open(file, &settings);
    let mut plain = open(file, &Settings { prefix_cache: false, ..settings });
    for length in lengths.iter().copied() {
        let prompt = prompt(length, 9);
        let alone = answer(&mut plain, &prompt, answered);
        let row = llm.admit(&prompt, answered, Sampling::GREEDY).unwrap();
        let mut made = 0;
        while made < 5 {
            llm.step(|_| made += 1).unwrap();
        }
        let before = kept(&llm);
        let forks: Vec<Row> = (0..3).map(|_| llm.fork(row, Sampling::GREEDY).unwrap()).collect();
        let sampled = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed: 7 };
        assert!(llm.fork(row, sampled).is_err(), "the batch is full");
        // What is written is shared; what is to come is each one's own.
        let whole = (length + answered).div_ceil(16) as u64;
        assert!(kept(&llm) - before < 3 * whole, "blocks are shared");
        run(&mut llm);
        for row in forks.into_iter().chain([row]) {
            assert_eq!(llm.tokens(row).unwrap()[length..], alone, "{name} {length}");
            llm.end(row).unwrap();
        }
        assert_eq!(kept(&llm), 0);
    }
}

#[test]
fn forks_share_blocks_and_answer_as_if_alone() {
    for (name, model) in tiny_models() {
        let file = tiny_file(&format!("fork-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        forks_answer_as_if_alone(name, &file, &[31, 32, 33, 70], 30);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn forks_of_real_models_answer_as_if_alone() {
    for model in [SMOLLM2, GEMMA3] {
        let Some(path) = model.path() else { return };
        // Gemma's window is 512 tokens: one answer slides out of it.
        forks_answer_as_if_alone(model.name, &ModelFile::open(path).unwrap(), &[33, 505], 24);
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let file = tiny_file("way", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let mut llm = open(&file, &settings());
    let prompt = prompt(40, 2);
    let row = llm.admit(&prompt, 30, Sampling::GREEDY).unwrap();
    llm.step(|_| ()).unwrap();
    llm.step(|_| ()).unwrap();
    let other = llm.fork(row, Sampling { temperature: 5.0, top_p: 1.0, top_k: 0, seed: 7 }).unwrap();
    run(&mut llm);
    let (greedy, sampled) = (llm.tokens(row).unwrap().to_vec(), llm.tokens(other).unwrap().to_vec());
    assert_eq!(greedy[..41], sampled[..41]);
    assert_ne!(greedy, sampled);
    llm.end(row).unwrap();
    llm.end(other).unwrap();
    assert_eq!(answer(&mut llm, &prompt, 30), greedy[40..]);
}

#[test]
fn a_swap_takes_the_cache_of_the_old_model_along() {
    let files =
        [("old", TinyModel::gemma3(5)), ("new", TinyModel::gemma3(6))].map(|(name, model)| tiny_file(name, model));
    let files: Vec<_> = files.iter().map(|file| ModelFile::open(file.path()).unwrap()).collect();
    let mut llm = open(&files[0], &Settings { graphs: 2, ..settings() });
    let prompt = prompt(60, 4);
    let mut said = Vec::new();
    for round in 0..4 {
        let first = answer(&mut llm, &prompt, 12);
        assert_eq!(llm.reused_tokens(), 0, "nothing of another model is found");
        assert_eq!(answer(&mut llm, &prompt, 12), first);
        assert!(llm.reused_tokens() >= 48);
        said.push(first);
        llm = llm.swap(&files[(round + 1) % 2], &mut |_| ()).unwrap();
    }
    assert_eq!((&said[0], &said[1]), (&said[2], &said[3]));
    assert_ne!(said[0], said[1]);
}

fn guesses_change_no_token(file: &ModelFile, prompts: &[Vec<u32>], length: usize) {
    let mut plain = open(file, &Settings { max_seq_len: 1024, ..settings() });
    let mut guessing = open(file, &Settings { max_seq_len: 1024, draft: 4, ..settings() });
    let (mut passes, mut fewer) = (0, 0);
    for prompt in prompts {
        let rows = [&mut plain, &mut guessing].map(|llm| {
            let row = llm.admit(prompt, length, Sampling::GREEDY).unwrap();
            (row, run(llm))
        });
        assert_eq!(plain.tokens(rows[0].0), guessing.tokens(rows[1].0));
        passes += rows[0].1;
        fewer += rows[1].1;
        plain.end(rows[0].0).unwrap();
        guessing.end(rows[1].0).unwrap();
    }
    println!("{passes} passes without guesses, {fewer} with");
    assert!(fewer < passes);
    assert_eq!(kept(&guessing), 0);
}

#[test]
fn guesses_change_no_token_of_tiny_models() {
    for (name, model) in tiny_models() {
        let file = tiny_file(&format!("draft-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let prompts: Vec<_> = (1..5).map(|index| prompt(29 * index as usize, index)).collect();
        guesses_change_no_token(&file, &prompts, 80);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn guesses_change_no_token_of_real_models() {
    for model in [SMOLLM2, GEMMA3] {
        let Some(path) = model.path() else { return };
        guesses_change_no_token(&ModelFile::open(path).unwrap(), &[prompt(40, 1), prompt(530, 2)], 48);
    }
}
