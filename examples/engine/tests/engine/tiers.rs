//! Answers do not depend on where a cached prefix has been: spilled and restored, or saved by one engine and loaded by another.

use std::path::{Path, PathBuf};

use crate::common::{GEMMA3, RealModel, SMOLLM2, tiny_file};
use crate::small::{answer, open, prompt};
use memtier::{Blocks, Bytes};
use memtier_engine::{Llm, ModelFile, Settings};
use memtier_model::write::TinyModel;
use tempfile::TempDir;

/// A model, and prompts of which together more than one sequence's blocks are cached.
struct Case {
    file: ModelFile,
    prompts: Vec<Vec<u32>>,
    /// A pool for one sequence, so that two long prompts do not fit.
    settings: Settings,
    alone: Vec<Vec<u32>>,
}

impl Case {
    /// `users` prompts that share their beginning, and as many that do not, `scale` times as long as those of a tiny model.
    fn new(file: ModelFile, scale: usize, users: u32) -> Self {
        let system = prompt(80 * scale, 99);
        let shared = (0..users).map(|user| [system.clone(), prompt(40 * scale, user)].concat());
        let prompts: Vec<_> = shared.chain((0..users).map(|user| prompt(90 * scale, 10 + user))).collect();
        let settings = Settings {
            budget: Bytes::gib(2),
            max_batch: 1,
            max_seq_len: 160 * scale,
            prefill_chunk: 32 * scale,
            threads: 2,
            window_snapshots: 2,
            ..Settings::default()
        };
        let mut plain = open(&file, &Settings { prefix_cache: false, ..settings.clone() });
        let alone = prompts.iter().map(|prompt| answer(&mut plain, prompt, 20)).collect();
        Case { file, prompts, settings, alone }
    }

    fn tiny(name: &str, model: TinyModel) -> Self {
        let file = tiny_file(&format!("tiers-{name}"), model);
        Case::new(ModelFile::open(file.path()).unwrap(), 1, 3)
    }

    fn tinies() -> [Self; 2] {
        [Case::tiny("llama", TinyModel::llama(5)), Case::tiny("gemma3", TinyModel::gemma3(5))]
    }

    fn real(model: RealModel) -> Option<Self> {
        // Gemma's window is 512 tokens: those that share their beginning are longer.
        Some(Case::new(ModelFile::open(model.path()?).unwrap(), if model == GEMMA3 { 5 } else { 1 }, 2))
    }

    fn two_tiers(&self, cold_snapshots: usize) -> Settings {
        Settings { cold_blocks: 512, cold_snapshots, ..self.settings.clone() }
    }

    /// Every prompt's answer is the one without a cache. How many tokens of each were found.
    fn answers_alike(&self, llm: &mut Llm, what: &str) -> Vec<u64> {
        let prompts = self.prompts.iter().zip(&self.alone);
        let found = prompts.map(|(prompt, alone)| {
            let before = llm.reused_tokens();
            assert_eq!(&answer(llm, prompt, 20), alone, "{what}");
            llm.reused_tokens() - before
        });
        found.collect()
    }

    /// Whether so many tokens are all that could be found of each prompt.
    fn all_of(&self, found: &[u64]) -> bool {
        found.iter().zip(self.whole()).all(|(found, whole)| *found >= whole)
    }

    /// The whole blocks of each prompt but its last token.
    fn whole(&self) -> Vec<u64> {
        self.prompts.iter().map(|prompt| (prompt.len() as u64 - 1) / 16 * 16).collect()
    }
}

/// Each tier by its own books: nothing is held but what is cached, and every window's copy.
fn conserved(llm: &Llm) {
    let (stats, pools) = (llm.tier_stats().unwrap(), llm.memory_report().pools);
    let held = |blocks: Blocks| pools.iter().filter(|pool| pool.held == blocks).count();
    assert!(held(stats.hot.cached) > 0 && held(stats.cold.cached) > 0, "{stats:?} {pools:?}");
    assert_eq!((stats.hot.reclaimable, stats.cold.reclaimable), (stats.hot.cached, stats.cold.cached));
    assert_eq!(stats.moving, Blocks::ZERO);
    if let Some(states) = llm.snapshot_stats() {
        assert!(states.moving == 0 && held(states.cold_blocks) > 0, "{states:?} {pools:?}");
    }
}

fn a_spilled_prefix_changes_no_token(case: &Case, rounds: usize) {
    let mut llm = open(&case.file, &case.two_tiers(16));
    for round in 0..rounds {
        let found = case.answers_alike(&mut llm, &format!("round {round}"));
        // Something of each was given up meanwhile, and all of it comes back.
        assert!(round == 0 || case.all_of(&found), "round {round}: {found:?} of {:?}", case.whole());
        conserved(&llm);
    }
    let (stats, states) = (llm.tier_stats().unwrap(), llm.snapshot_stats());
    println!("{stats:?} {states:?}");
    assert!(stats.spilled > 20 && stats.restored > 20 && stats.hot.evicted > 40, "{stats:?}");
    let prompts = case.prompts.len() as u64;
    let is_used = |states: memtier::SnapshotStats| states.restored > prompts && states.spilled >= prompts;
    assert!(states.is_none_or(is_used), "{states:?}");
}

/// With room for two windows.
fn a_full_second_tier_changes_no_token(case: &Case, cold_blocks: usize, spill_ahead: usize) {
    let settings = Settings { cold_blocks, spill_ahead, cold_snapshots: 2, ..case.settings.clone() };
    let mut llm = open(&case.file, &settings);
    for round in 0..2 {
        case.answers_alike(&mut llm, &format!("round {round} with {cold_blocks} blocks"));
        conserved(&llm);
    }
}

#[test]
fn tiny_models_answer_alike_after_spilling_and_restoring() {
    Case::tinies().iter().for_each(|case| a_spilled_prefix_changes_no_token(case, 4));
}

#[test]
fn tiny_models_answer_alike_with_a_full_second_tier() {
    for case in &Case::tinies() {
        for (cold_blocks, spill_ahead) in [(10, 8), (5, 3), (1, 1), (20, 0)] {
            a_full_second_tier_changes_no_token(case, cold_blocks, spill_ahead);
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn real_models_answer_alike_after_spilling_and_restoring() {
    for case in [SMOLLM2, GEMMA3].into_iter().filter_map(Case::real) {
        a_spilled_prefix_changes_no_token(&case, 3);
        // Of one prompt and a half, or so.
        a_full_second_tier_changes_no_token(&case, case.settings.max_seq_len / 16, 8);
    }
}

/// Room for all prompts, and for copies of all their windows.
fn stored(case: &Case, folder: &TempDir, cold_blocks: usize) -> Settings {
    let prefix_store = Some(folder.path().join("store"));
    let settings = Settings { cold_blocks, max_batch: 4, prefix_store, window_snapshots: 16, ..case.settings.clone() };
    // With two tiers, most windows are beside the second.
    if cold_blocks > 0 { Settings { window_snapshots: 2, cold_snapshots: 16, ..settings } } else { settings }
}

fn a_saved_prefix_changes_no_token(case: &Case, cold_blocks: usize) {
    let folder = tempfile::tempdir().unwrap();
    let settings = stored(case, &folder, cold_blocks);
    let mut first = open(&case.file, &settings);
    assert_eq!(first.load_prefixes().unwrap(), []);
    case.answers_alike(&mut first, "before the save");
    let saved = first.save_prefixes().unwrap().unwrap();
    let states = first.snapshot_stats().map(|stats| (stats.hot + stats.cold) as u64);
    assert!(saved > Blocks::new(20), "{saved}");
    drop(first);
    let mut second = open(&case.file, &settings);
    let loaded = second.load_prefixes().unwrap();
    assert!(loaded.iter().all(|loaded| loaded.tear.is_none()), "{loaded:?}");
    assert_eq!(loaded.iter().map(|loaded| loaded.blocks).sum::<u64>(), saved.count(), "{loaded:?}");
    let with_states: u64 = loaded.iter().map(|loaded| loaded.states).sum();
    assert_eq!(with_states, states.unwrap_or(0), "{loaded:?}");
    let found = case.answers_alike(&mut second, "after the load");
    assert!(case.all_of(&found), "{found:?} of {:?}", case.whole());
    // It saves what it has, and that can be loaded again.
    second.save_prefixes().unwrap();
    assert!(!open(&case.file, &settings).load_prefixes().unwrap().is_empty());
}

/// Every file of a store, in their order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

fn a_torn_store_changes_no_token(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let settings = stored(case, &folder, 512);
    let mut first = open(&case.file, &settings);
    case.answers_alike(&mut first, "before the save");
    first.save_prefixes().unwrap();
    let (mut torn, mut states) = (0, 0);
    for path in files(folder.path()) {
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let mut llm = open(&case.file, &settings);
        match llm.load_prefixes() {
            Ok(loaded) => {
                assert_eq!(loaded.iter().filter(|loaded| loaded.tear.is_some()).count(), 1, "{loaded:?}");
                torn += 1;
                states += u64::from(path.to_string_lossy().contains("states"));
            }
            Err(error) => assert!(path.ends_with("manifest") && error.to_string().contains("delete it"), "{error}"),
        }
        case.answers_alike(&mut llm, &format!("{} was torn", path.display()));
        std::fs::write(&path, whole).unwrap();
    }
    assert!(torn >= 2 && (states >= 1) == first.snapshot_stats().is_some(), "{torn} {states}");
}

#[test]
fn tiny_models_answer_alike_after_saving_and_loading() {
    for case in &Case::tinies() {
        a_saved_prefix_changes_no_token(case, 0);
        a_saved_prefix_changes_no_token(case, 64);
    }
}

#[test]
fn tiny_models_answer_alike_with_a_torn_store() {
    for case in &Case::tinies() {
        a_torn_store_changes_no_token(case);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn real_models_answer_alike_after_saving_and_loading() {
    for (model, blocks) in [(SMOLLM2, 64), (GEMMA3, 256)] {
        let Some(case) = Case::real(model) else { continue };
        a_saved_prefix_changes_no_token(&case, blocks);
    }
}

#[test]
fn another_model_does_not_find_what_this_one_saved() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in [TinyModel::llama, TinyModel::gemma3] {
        let [first, second] = [5, 6].map(|seed| tiny_file(&format!("tiers-model-{seed}"), tiny(seed)));
        let settings = Settings {
            budget: Bytes::gib(2),
            max_batch: 1,
            max_seq_len: 160,
            threads: 2,
            prefix_store: Some(folder.path().join("store")),
            ..Settings::default()
        };
        let mut llm = open(&ModelFile::open(first.path()).unwrap(), &settings);
        answer(&mut llm, &prompt(90, 1), 20);
        llm.save_prefixes().unwrap();
        // Under the same name: what counts is what is in the file.
        std::fs::copy(second.path(), first.path()).unwrap();
        let mut llm = open(&ModelFile::open(first.path()).unwrap(), &settings);
        assert_eq!(llm.load_prefixes().unwrap(), []);
    }
}
