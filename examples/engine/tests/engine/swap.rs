//! Models that take turns on one engine, and passes that are recorded, forgotten and recorded again.

use std::collections::BTreeMap;

use crate::common::{
    server::{prompt, settings},
    tiny_file,
};
use memtier::{Bytes, account::GraphStats, plan::Tier};
use memtier_engine::{Addresses, EngineError, Llm, ModelFile, Sampling, Settings};
use memtier_model::write::TinyModel;

fn recorded() -> Settings {
    // Without a cache, so that every round makes the same passes, and nobody holds a block after it.
    Settings { graphs: 3, prefix_cache: false, ..settings() }
}

/// Answers `count` prompts at once.
fn answers(llm: &mut Llm, count: u32, answer: usize) -> Vec<Vec<u32>> {
    let rows: Vec<_> = (0..count).map(|index| llm.admit(&prompt(index), answer, Sampling::GREEDY).unwrap()).collect();
    while llm.step(|_| ()).unwrap() > 0 {}
    let all = rows.iter().map(|row| llm.tokens(*row).unwrap().to_vec()).collect();
    rows.into_iter().for_each(|row| llm.end(row).unwrap());
    all
}

/// What is there is what was planned, and what survived the model before: `kept`. Nobody holds a block.
fn report_is_exact(llm: &Llm, kept: Bytes) {
    let report = llm.memory_report();
    assert_eq!(report.unplanned_acquisitions(), 0);
    let committed = Bytes::sum(report.tiers.iter().map(|tier| tier.committed)).unwrap();
    assert_eq!(report.device.live, committed.plus(kept).unwrap(), "{report}");
    assert_eq!(report.unattributed, kept, "{report}");
    let weights = report.tiers.iter().find(|tier| tier.tier == Tier::ModelResident).unwrap();
    assert_eq!((weights.committed, weights.used), (weights.planned, weights.planned), "{report}");
    for pool in &report.pools {
        assert_eq!(pool.held.count(), 0, "{report}");
    }
}

#[test]
fn two_hundred_swaps_and_rebuilds_keep_addresses_builds_and_reports() {
    // Two of one topology and one of another.
    let models = [("one", TinyModel::llama(5)), ("two", TinyModel::llama(6)), ("other", TinyModel::gemma3(5))];
    let files: Vec<_> = models.into_iter().map(|(name, model)| tiny_file(name, model)).collect();
    let files: Vec<_> = files.iter().map(|file| ModelFile::open(file.path()).unwrap()).collect();
    let mut llm = Llm::open(&files[0], &recorded(), &mut |_| ()).unwrap();
    let tier = |llm: &Llm, tier| llm.memory_report().tiers.iter().find(|it| it.tier == tier).unwrap().committed;
    let persistent = tier(&llm, Tier::EnginePersistent);
    let (mut said, mut live) = (BTreeMap::new(), BTreeMap::new());
    let mut before: Option<(usize, Addresses)> = None;
    let mut fixed = None;
    for round in 0..200 {
        // Mostly a swap within the topology; every tenth crosses to the other and back.
        let which = if round % 10 == 9 { 2 } else { round % 2 };
        if round > 0 {
            llm = llm.swap(&files[which], &mut |_| ()).unwrap();
        }
        // Recorded at load, once for each number of requests, and not again while they are served.
        assert_eq!(llm.graph_stats(), GraphStats { builds: 3, reuses: 0, evictions: 0 });
        let count = 1 + round as u32 % 3;
        let answered = answers(&mut llm, count, 4);
        for (index, tokens) in answered.into_iter().enumerate() {
            assert_eq!(*said.entry((which, index)).or_insert_with(|| tokens.clone()), tokens, "round {round}");
        }
        let stats = llm.graph_stats();
        assert!(stats.builds == 3 && stats.reuses > 0, "{stats:?}");
        let here = llm.addresses().unwrap();
        // The page table's rows and the workspace do not depend on the model: they never move. Pools stay where the topology
        // stays.
        let now = (here.workspace, here.table);
        assert_eq!(*fixed.get_or_insert(now), now, "round {round}");
        if let Some((last, there)) = before
            && (last == 2) == (which == 2)
        {
            assert_eq!((here.kv, here.scratch), (there.kv, there.scratch), "round {round}");
        }
        before = Some((which, here));
        // Workspace and page table are of the first plan, and of no later one.
        report_is_exact(&llm, if round == 0 { Bytes::ZERO } else { persistent });
        let bytes = llm.memory_report().device.live;
        assert_eq!(
            *live.entry((which, round < 10)).or_insert(bytes),
            bytes,
            "round {round}: the same model, the same bytes"
        );
    }
}

#[test]
fn two_hundred_rebuilds_bake_the_same_addresses() {
    let file = tiny_file("rebuild", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let mut llm = Llm::open(&file, &recorded(), &mut |_| ()).unwrap();
    let (there, first) = (llm.addresses().unwrap(), answers(&mut llm, 2, 6));
    for round in 1..=200 {
        let builds = llm.graph_stats().builds;
        llm.forget_graphs().unwrap();
        assert_eq!(answers(&mut llm, 2, 6), first, "round {round}");
        // They decode together, and the second one alone when the first has ended: recorded once each.
        assert_eq!(llm.graph_stats().builds, builds + 2, "round {round}");
        assert_eq!(llm.addresses().unwrap(), there, "round {round}");
        report_is_exact(&llm, Bytes::ZERO);
    }
}

#[test]
fn replayed_passes_choose_the_tokens_of_launched_ones() {
    for (name, model) in [("launched-llama", TinyModel::llama(7)), ("launched-gemma3", TinyModel::gemma3(7))] {
        let file = tiny_file(name, model);
        let file = ModelFile::open(file.path()).unwrap();
        let mut launched = Llm::open(&file, &settings(), &mut |_| ()).unwrap();
        let mut replayed = Llm::open(&file, &recorded(), &mut |_| ()).unwrap();
        for count in [1, 2, 3, 4, 2] {
            assert_eq!(
                answers(&mut launched, count, 100),
                answers(&mut replayed, count, 100),
                "{name}, {count} at once"
            );
        }
        // Four are more than are kept: one more graph was recorded, and the oldest went.
        let stats = replayed.graph_stats();
        assert!(stats.evictions >= 1 && stats.reuses > 300, "{stats:?}");
        assert_eq!(launched.graph_stats(), GraphStats::default());
    }
}

#[test]
fn a_swap_while_requests_run_is_refused_and_they_go_on() {
    let files = [("busy", 5), ("next", 6)].map(|(name, seed)| tiny_file(name, TinyModel::llama(seed)));
    let files = files.map(|file| ModelFile::open(file.path()).unwrap());
    let mut llm = Llm::open(&files[0], &settings(), &mut |_| ()).unwrap();
    let row = llm.admit(&prompt(1), 4, Sampling::GREEDY).unwrap();
    llm.step(|_| ()).unwrap();
    let failed = llm.swap(&files[1], &mut |_| ()).err().unwrap();
    assert!(matches!(failed.error, EngineError::Busy(_)) && failed.to_string().contains("let them end"), "{failed}");
    let mut llm = *failed.engine.unwrap();
    while llm.step(|_| ()).unwrap() > 0 {}
    let answer = llm.tokens(row).unwrap().to_vec();
    llm.end(row).unwrap();
    assert_eq!(answers(&mut Llm::open(&files[0], &settings(), &mut |_| ()).unwrap(), 2, 4)[1], answer);
    assert!(llm.swap(&files[1], &mut |_| ()).is_ok());
}
