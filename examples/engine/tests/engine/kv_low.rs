//! The KV rung: requests that start at WATCH or above have keys and values of smaller elements, in a pool of their own.

use std::sync::Arc;

use crate::common::{
    Tree,
    server::{prompt, settings},
    tiny_file,
};
use memtier::{
    plan::KvDtype,
    pressure::{INTERVAL, Level, ProcFiles, Thresholds, Watcher},
};
use memtier_engine::{Llm, ModelFile, Row, Sampling, Settings};
use memtier_model::write::TinyModel;

/// Available MiB of 32 GiB.
const OK: u64 = 24_576;
const WATCH: u64 = 9000;

struct Stage {
    tree: Tree,
    watcher: Arc<Watcher>,
    llm: Llm,
}

impl Stage {
    fn new(name: &str, model: TinyModel, settings: &Settings) -> Self {
        // Heads of 32: what types with scales want.
        let model = TinyModel { head_dim: 32, ..model };
        let (tree, file) = (Tree::new(), tiny_file(name, model));
        let source = Box::new(ProcFiles::under(tree.root()));
        let watcher = Arc::new(Watcher::new(source, Thresholds::default(), INTERVAL).unwrap());
        watcher.poll_now();
        let file = ModelFile::open(file.path()).unwrap();
        let llm = Llm::open_watched(&file, settings, Some(&watcher), &mut |_| ()).unwrap();
        Stage { tree, watcher, llm }
    }

    /// Sets the level, and lets the engine see it.
    fn at(&mut self, available: u64) {
        self.tree.meminfo(32 << 20, available << 10);
        self.watcher.poll_now();
        self.llm.start_waiting(|_, _| ());
    }

    fn admit(&mut self, index: u32) -> Row {
        self.llm.admit(&prompt(index), 60, Sampling::GREEDY).unwrap()
    }

    fn run(&mut self, rows: &[Row]) -> Vec<Vec<u32>> {
        while self.llm.step(|_| ()).unwrap() > 0 {}
        let all = rows.iter().map(|row| self.llm.tokens(*row).unwrap().to_vec()).collect();
        rows.iter().for_each(|row| self.llm.end(*row).unwrap());
        all
    }

    fn logits(&mut self) -> Vec<f32> {
        let mut all = Vec::new();
        self.llm.score(&prompt(3), &mut |_, row| all.extend_from_slice(row), None).unwrap();
        all
    }

    /// Blocks held of f16 and of eight bits.
    fn held(&self) -> (u64, u64) {
        let pools = self.llm.memory_report().pools;
        let (full, small) = (&pools[0], &pools[1]);
        assert!(small.block.count() * 5 < full.block.count() * 3, "{} and {}", small.block, full.block);
        (full.held.count(), small.held.count())
    }
}

/// Without a cache, whose blocks would be counted as well.
fn low() -> Settings {
    Settings { kv_low: Some(KvDtype::Q8_0), prefix_cache: false, ..settings() }
}

#[test]
fn at_watch_new_requests_are_of_eight_bits_and_old_ones_stay() {
    for (name, model) in [("low-llama", TinyModel::llama(5)), ("low-gemma3", TinyModel::gemma3(5))] {
        let mut stage = Stage::new(name, model, &low());
        // Each alone.
        let row = stage.admit(1);
        let full = stage.run(&[row]).remove(0);
        stage.at(WATCH);
        assert_eq!(stage.llm.limits().limits.kv, KvDtype::Q8_0, "{}", stage.llm.limits());
        let row = stage.admit(2);
        assert!(stage.held().0 == 0 && stage.held().1 > 0, "{:?}", stage.held());
        let small = stage.run(&[row]).remove(0);
        // Together: one that started before, one at WATCH, one after.
        stage.at(OK);
        let before = stage.admit(1);
        stage.llm.step(|_| ()).unwrap();
        stage.at(WATCH);
        let during = stage.admit(2);
        stage.at(OK);
        assert_eq!((stage.llm.limits().level, stage.llm.limits().limits.kv), (Level::Ok, KvDtype::F16));
        let after = stage.admit(1);
        assert!(stage.held().0 > stage.held().1 && stage.held().1 > 0, "{:?}", stage.held());
        let together = stage.run(&[before, during, after]);
        assert_eq!(together, [full.clone(), small, full], "{name}: a request is not disturbed by its neighbours'");
        assert_eq!(stage.held(), (0, 0));
        assert!(stage.llm.decisions().to_string().contains("watch: new KV f16 -> q8_0"), "{}", stage.llm.decisions());
    }
}

#[test]
fn eight_bits_change_logits_by_little_and_not_by_nothing() {
    for (name, model) in [("logits-llama", TinyModel::llama(5)), ("logits-gemma3", TinyModel::gemma3(5))] {
        let mut stage = Stage::new(name, model, &low());
        let full = stage.logits();
        stage.at(WATCH);
        let small = stage.logits();
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
        let off = square(&mut full.iter().zip(&small).map(|(a, b)| a - b)) / square(&mut full.iter().copied());
        println!("{name}: logits move by {:.5}", off.sqrt());
        assert!(off.sqrt() < 0.02 && off > 0.0, "{name}: {}", off.sqrt());
        stage.at(OK);
        assert_eq!(stage.logits(), full, "{name}: and all of it is undone");
    }
}

#[test]
fn replayed_passes_of_eight_bits_are_the_launched_ones() {
    let mut answers = Vec::new();
    for (name, graphs) in [("launched-low", 0), ("replayed-low", 3)] {
        let mut stage = Stage::new(name, TinyModel::llama(5), &Settings { graphs, prefix_cache: true, ..low() });
        let full = stage.admit(1);
        stage.at(WATCH);
        let small = stage.admit(2);
        answers.push(stage.run(&[full, small]));
        assert_eq!(stage.llm.graph_stats().reuses > 0, graphs > 0);
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn without_the_pool_the_rung_reduces_nothing_and_says_nothing() {
    let mut stage = Stage::new("no-low", TinyModel::llama(5), &settings());
    stage.at(WATCH);
    assert_eq!((stage.llm.limits().level, stage.llm.limits().degraded()), (Level::Watch, false));
    assert!(stage.llm.decisions().is_empty(), "{}", stage.llm.decisions());
}
