//! Answers do not depend on where a cached prefix has been: spilled and restored, or saved by one engine and loaded by another.

mod common;

use std::path::{Path, PathBuf};

use common::{SMOLLM2, tiny_file};
use memtier::{Blocks, Bytes};
use memtier_engine::{EngineError, Llm, ModelFile, Sampling, Settings};
use memtier_model::write::TinyModel;

/// A pool for one sequence of 16 blocks, so that two long prompts do not fit.
fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 1,
        max_seq_len: 256,
        prefill_chunk: 32,
        threads: 2,
        ..Settings::default()
    }
}

fn open(file: &ModelFile, settings: &Settings) -> Llm {
    Llm::open(file, settings, &mut |_| ()).unwrap()
}

fn prompt(length: usize, seed: u32) -> Vec<u32> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 7 & 127).collect()
}

fn answer(llm: &mut Llm, prompt: &[u32]) -> Vec<u32> {
    let row = llm.admit(prompt, 20, Sampling::GREEDY).unwrap();
    while llm.step(|_| ()).unwrap() > 0 {}
    let tokens = llm.tokens(row).unwrap()[prompt.len()..].to_vec();
    llm.end(row).unwrap();
    tokens
}

/// Some that share their beginning, and some that do not: together more than the pool holds.
fn prompts() -> Vec<Vec<u32>> {
    let system = prompt(80, 99);
    let shared = (1..4).map(|user| [system.clone(), prompt(40, user)].concat());
    shared.chain((4..7).map(|user| prompt(90, user))).collect()
}

fn plain_answers(file: &ModelFile) -> Vec<Vec<u32>> {
    let mut plain = open(file, &Settings { prefix_cache: false, ..settings() });
    prompts().iter().map(|prompt| answer(&mut plain, prompt)).collect()
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(std::env::temp_dir().join(format!("memtier-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn a_spilled_prefix_changes_no_token(file: &ModelFile) {
    let alone = plain_answers(file);
    let mut llm = open(file, &Settings { cold_blocks: 128, ..settings() });
    for round in 0..4 {
        for (prompt, alone) in prompts().iter().zip(&alone) {
            let before = llm.reused_tokens();
            assert_eq!(&answer(&mut llm, prompt), alone, "round {round}");
            let reused = llm.reused_tokens() - before;
            assert!(round == 0 || reused >= (prompt.len() as u64 - 1) / 16 * 16, "round {round}: {reused} reused");
        }
        let (stats, pools) = (llm.tier_stats().unwrap(), llm.memory_report().pools);
        // Both tiers, each by its own books: nothing is held but what is cached.
        let held = |blocks: Blocks| pools.iter().filter(|pool| pool.held == blocks).count();
        assert!(held(stats.hot.cached) > 0 && held(stats.cold.cached) > 0, "{stats:?} {pools:?}");
        assert_eq!((stats.hot.reclaimable, stats.cold.reclaimable), (stats.hot.cached, stats.cold.cached));
        assert_eq!(stats.moving, Blocks::ZERO);
    }
    let stats = llm.tier_stats().unwrap();
    assert!(stats.spilled > 20 && stats.restored > 60 && stats.hot.evicted > 60, "{stats:?}");
}

fn a_saved_prefix_changes_no_token(file: &ModelFile, folder: &str, cold_blocks: usize) {
    let (alone, folder) = (plain_answers(file), Folder::new(folder));
    let settings = Settings { cold_blocks, max_batch: 4, prefix_store: Some(folder.path().to_owned()), ..settings() };
    let mut first = open(file, &settings);
    assert_eq!(first.load_prefixes().unwrap(), []);
    prompts().iter().zip(&alone).for_each(|(prompt, alone)| assert_eq!(&answer(&mut first, prompt), alone));
    let saved = first.save_prefixes().unwrap().unwrap();
    assert!(saved > Blocks::new(20), "{saved}");
    drop(first);
    let mut second = open(file, &settings);
    let loaded = second.load_prefixes().unwrap();
    assert!(loaded.iter().all(|loaded| loaded.tear.is_none()), "{loaded:?}");
    // The pool starts with one sequence's blocks: what is free takes part of it.
    assert!(loaded.iter().map(|loaded| loaded.blocks).sum::<u64>() >= 16, "{loaded:?}");
    prompts().iter().zip(&alone).for_each(|(prompt, alone)| assert_eq!(&answer(&mut second, prompt), alone));
    assert!(second.reused_tokens() >= 16 * 16, "{} tokens reused", second.reused_tokens());
    // It saves what it has, and that can be loaded again.
    second.save_prefixes().unwrap();
    assert!(!open(file, &settings).load_prefixes().unwrap().is_empty());
}

#[test]
fn a_tiny_model_answers_alike_after_spilling_and_restoring() {
    let file = tiny_file("tiers-spill", TinyModel::llama(5));
    a_spilled_prefix_changes_no_token(&ModelFile::open(file.path()).unwrap());
}

#[test]
fn a_tiny_model_answers_alike_after_saving_and_loading() {
    let file = tiny_file("tiers-save", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    a_saved_prefix_changes_no_token(&file, "one-tier", 0);
    a_saved_prefix_changes_no_token(&file, "two-tiers", 64);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_answers_alike_after_spilling_and_restoring() {
    let Some(path) = SMOLLM2.path() else { return };
    a_spilled_prefix_changes_no_token(&ModelFile::open(path).unwrap());
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_answers_alike_after_saving_and_loading() {
    let Some(path) = SMOLLM2.path() else { return };
    a_saved_prefix_changes_no_token(&ModelFile::open(path).unwrap(), "smollm2", 64);
}

#[test]
fn another_model_does_not_find_what_this_one_saved() {
    let folder = Folder::new("models");
    let settings = Settings { prefix_store: Some(folder.path().to_owned()), ..settings() };
    let [first, second] = [5, 6].map(|seed| tiny_file(&format!("tiers-model-{seed}"), TinyModel::llama(seed)));
    let mut llm = open(&ModelFile::open(first.path()).unwrap(), &settings);
    answer(&mut llm, &prompt(90, 1));
    llm.save_prefixes().unwrap();
    // Under the same name: what counts is what is in the file.
    std::fs::copy(second.path(), first.path()).unwrap();
    let mut llm = open(&ModelFile::open(first.path()).unwrap(), &settings);
    assert_eq!(llm.load_prefixes().unwrap(), []);
}

#[test]
fn models_with_a_window_are_refused() {
    let file = tiny_file("tiers-window", TinyModel::gemma3(5));
    let file = ModelFile::open(file.path()).unwrap();
    let settings = Settings { cold_blocks: 8, ..settings() };
    let refused = Llm::open(&file, &settings, &mut |_| ()).err();
    assert!(matches!(refused, Some(EngineError::Unsupported { .. })), "{refused:?}");
}
