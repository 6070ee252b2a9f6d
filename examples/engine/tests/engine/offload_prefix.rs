//! Cached prefixes of a model whose layers are in two memories: in both or in none, the same answers, and every block back.

use crate::common::{SMOLLM2, tiny_file};
use crate::small::{self, open, prompt, run};
use memtier::{Bytes, MemoryPlan, plan::KvDtype};
use memtier_engine::{
    EngineError, GpuLayers, Llm, ModelFile, Row, Sampling, Settings, kv_types::KvTypes, tokenizer::Tokenizer,
};
use memtier_model::write::TinyModel;

fn settings(layers: Option<u64>) -> Settings {
    Settings {
        gpu_layers: layers.map(GpuLayers::Count),
        budget: Bytes::mib(512),
        max_batch: 3,
        max_seq_len: 256,
        prefill_chunk: 48,
        window_snapshots: 6,
        threads: 2,
        ..Settings::default()
    }
}

/// With the splits that are worth a look. Of seven layers of Gemma 3 the sixth is the only one without a window: in the first split
/// none of the front has the whole context, in the second the front has both kinds and the rest one, in the third the same with one
/// layer more on the other side.
fn models() -> [(&'static str, TinyModel, &'static [u64]); 2] {
    let wide = |model: TinyModel, layers| TinyModel { head_dim: 32, layers, ..model };
    [("llama", wide(TinyModel::llama(5), 5), &[2]), ("gemma3", wide(TinyModel::gemma3(5), 7), &[3, 6, 5])]
}

fn answer(llm: &mut Llm, prompt: &[u32], length: usize) -> Vec<u32> {
    let row = llm.admit(prompt, length, Sampling::GREEDY).unwrap();
    run(llm);
    let tokens = llm.tokens(row).unwrap()[prompt.len()..].to_vec();
    llm.end(row).unwrap();
    in_step(llm);
    tokens
}

/// Both parts have cached the same.
fn in_step(llm: &Llm) {
    let parts = llm.parts();
    let stats: Vec<_> = parts.iter().map(|part| part.prefixes.unwrap()).collect();
    assert_eq!(stats.len(), 2);
    // Who looked is no matter: a load of copies of windows does.
    let [front, main] = [0, 1].map(|part| (stats[part].cached, stats[part].reclaimable, stats[part].evicted));
    assert_eq!(front, main);
}

/// All that is held is cached, or a copy of a window.
fn all_is_back(llm: &Llm) {
    for part in llm.parts() {
        let cached = part.prefixes.unwrap();
        assert_eq!(cached.cached, cached.reclaimable, "{}", part.name);
        assert_eq!(part.report.pools[0].held, cached.cached, "{}", part.name);
        assert_eq!(part.report.unplanned_acquisitions(), 0, "{}", part.name);
    }
}

#[test]
fn a_prefix_in_both_parts_changes_no_token() {
    for (name, model, splits) in models() {
        let file = tiny_file(&format!("pair-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let prompts: Vec<_> = (1..6).map(|index| prompt(23 * index as usize, index)).collect();
        for dtype in [KvDtype::F16, KvDtype::Q4_0] {
            let of = |layers| Settings { kv_types: KvTypes::all(dtype), ..settings(layers) };
            let mut plain = open(&file, &Settings { prefix_cache: false, ..of(None) });
            let mut split: Vec<_> = splits.iter().map(|layers| open(&file, &of(Some(*layers)))).collect();
            for prompt in &prompts {
                let alone = small::answer(&mut plain, prompt, 20);
                let longer = [&prompt[..], &alone, &prompts[0][..7]].concat();
                let longer_alone = small::answer(&mut plain, &longer, 20);
                for (llm, layers) in split.iter_mut().zip(splits) {
                    let told = format!("{name} {dtype}, {layers} layers in front");
                    assert_eq!(answer(llm, prompt, 20), alone, "{told}: cold");
                    let cold = llm.reused_tokens();
                    assert_eq!(answer(llm, prompt, 20), alone, "{told}: warm");
                    let warm = llm.reused_tokens();
                    assert!(warm - cold >= (prompt.len() as u64 - 1) / 16 * 16, "{told}: {cold} {warm}");
                    assert_eq!(answer(llm, &longer, 20), longer_alone, "{told}: longer");
                    assert!(llm.reused_tokens() > warm, "{told}: the conversation's blocks were found");
                }
            }
            split.iter().for_each(all_is_back);
        }
    }
}

/// Budgets that leave the one part, or the other, or both, a pool for two of three sequences.
fn tight(file: &ModelFile, settings: &Settings) -> Vec<Settings> {
    let whole = Settings { vram_budget: Some(Bytes::mib(256)), ..settings.clone() };
    // A block less than all of them: pools are granted in steps of a sequence.
    let less = |plan: &MemoryPlan| {
        let pool = plan.lines().iter().find(|line| line.name.contains("global KV") && line.blocks.is_some()).unwrap();
        Bytes::new(plan.total().count() - pool.blocks.unwrap().block.count())
    };
    let plans = Llm::plan_only(file, &whole).unwrap();
    let [front, main] = [0, 1].map(|part: usize| less(&plans[part].1));
    let front_small = Settings { vram_budget: Some(front), ..whole.clone() };
    let main_small = Settings { budget: main, ..whole };
    // What is in front has no more than the rest.
    if plans[0].1.total() > main {
        return vec![front_small];
    }
    vec![front_small.clone(), main_small.clone(), Settings { vram_budget: Some(front), ..main_small }]
}

#[test]
fn a_pool_that_runs_dry_takes_the_same_from_both() {
    for (name, model, splits) in models() {
        let file = tiny_file(&format!("dry-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let mut plain = open(&file, &Settings { prefix_cache: false, ..settings(None) });
        let prompts: Vec<_> = (0..8).map(|user| [prompt(40, user % 3), prompt(90, 10 + user)].concat()).collect();
        let alone: Vec<_> = prompts.iter().map(|prompt| small::answer(&mut plain, prompt, 20)).collect();
        for layers in splits {
            for (which, settings) in tight(&file, &settings(Some(*layers))).iter().enumerate() {
                let mut llm = open(&file, settings);
                for round in 0..2 {
                    for at in 0..prompts.len() {
                        // Two at once, in changing company.
                        let other = (at * 3 + round) % prompts.len();
                        let rows = [at, other].map(|at| (at, llm.admit(&prompts[at], 20, Sampling::GREEDY)));
                        in_step(&llm);
                        run(&mut llm);
                        for (at, row) in rows {
                            match row {
                                Ok(row) => {
                                    assert_eq!(llm.tokens(row).unwrap()[prompts[at].len()..], alone[at], "{name}");
                                    llm.end(row).unwrap();
                                }
                                Err(EngineError::Capacity(_)) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                        in_step(&llm);
                    }
                }
                let evicted = llm.parts()[0].prefixes.unwrap().evicted;
                assert!(evicted > 20 && llm.reused_tokens() > 0, "{name} {which}: {evicted} evicted");
                all_is_back(&llm);
                let pools: Vec<_> = llm.parts().iter().map(|part| part.report.pools[0].committed.count()).collect();
                println!("{name}, {layers} layers in front: pools of {pools:?} blocks, {evicted} evicted");
                assert!(pools[usize::from(which == 0)] > pools[usize::from(which != 0)] || which == 2, "{pools:?}");
            }
        }
    }
}

#[test]
fn requests_that_come_and_go_leave_every_block_of_both_parts() {
    for (name, model, splits) in models() {
        let file = tiny_file(&format!("random-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        for layers in splits {
            let front_small = tight(&file, &settings(Some(*layers))).remove(0);
            let mut llm = open(&file, &Settings { draft: 2, ..front_small });
            let mut random = 11 + layers;
            let mut below = |most: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % most
            };
            let mut rows: Vec<Row> = Vec::new();
            for _ in 0..300 {
                match below(8) {
                    0..3 => {
                        let (user, length) = (below(4) as u32, 1 + below(90) as usize);
                        let tokens = [prompt(16 * below(5) as usize, user), prompt(length, below(3) as u32)].concat();
                        match llm.admit(&tokens, below(40) as usize, Sampling::GREEDY) {
                            Ok(row) => rows.push(row),
                            Err(EngineError::Capacity(_) | EngineError::BatchFull { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    // Cancelled wherever it is.
                    3 if !rows.is_empty() => llm.end(rows.swap_remove(below(rows.len() as u64) as usize)).unwrap(),
                    _ => _ = llm.step(|_| ()).unwrap(),
                }
                in_step(&llm);
            }
            rows.into_iter().for_each(|row| llm.end(row).unwrap());
            let stats = llm.parts()[0].prefixes.unwrap();
            println!("{name}, {layers} layers in front: {stats:?}");
            assert!(stats.hits > 50 && stats.evicted > 20, "{name}: {stats:?}");
            in_step(&llm);
            all_is_back(&llm);
        }
    }
}

#[test]
fn a_fork_has_the_blocks_of_both_parts_until_it_writes() {
    for (name, model, splits) in models() {
        let file = tiny_file(&format!("forked-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let mut plain = open(&file, &Settings { prefix_cache: false, ..settings(None) });
        for layers in splits {
            let mut llm = open(&file, &settings(Some(*layers)));
            // In the middle of a block, and at the end of one.
            for length in [70, 59] {
                let prompt = prompt(length, 9);
                let alone = small::answer(&mut plain, &prompt, 20);
                let row = llm.admit(&prompt, 20, Sampling::GREEDY).unwrap();
                let mut made = 0;
                while made < 5 {
                    llm.step(|_| made += 1).unwrap();
                }
                let held = |llm: &Llm| -> Vec<_> {
                    llm.parts().iter().map(|part| part.report.pools[0].held.count()).collect()
                };
                let before = held(&llm);
                let forks = [0, 1].map(|_| llm.fork(row, Sampling::GREEDY).unwrap());
                let shared = held(&llm).iter().zip(&before).all(|(now, before)| now - before < 2 * 3);
                assert!(shared, "{name}: {before:?}, then {:?}", held(&llm));
                run(&mut llm);
                for row in [row, forks[0], forks[1]] {
                    assert_eq!(llm.tokens(row).unwrap()[length..], alone, "{name}, {layers} layers in front");
                    llm.end(row).unwrap();
                }
                in_step(&llm);
            }
            all_is_back(&llm);
        }
    }
}

#[test]
fn both_parts_are_saved_and_come_back_where_the_layers_are_cut_alike() {
    for (name, model, splits) in models() {
        let layers = u64::from(model.layers);
        let file = tiny_file(&format!("saved-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let prompt = prompt(100, 4);
        let alone = small::answer(&mut open(&file, &Settings { prefix_cache: false, ..settings(None) }), &prompt, 20);
        let of = |layers| Settings { prefix_store: Some(folder.path().join("store")), ..settings(layers) };
        let mut saved = open(&file, &of(Some(splits[0])));
        assert_eq!(answer(&mut saved, &prompt, 20), alone);
        let blocks = saved.save_prefixes().unwrap().unwrap().count();
        let mut loaded = open(&file, &of(Some(splits[0])));
        let found = loaded.load_prefixes().unwrap();
        assert_eq!((found.len(), found.iter().map(|part| part.blocks).sum::<u64>()), (2, blocks), "{name}");
        assert_eq!(answer(&mut loaded, &prompt, 20), alone, "{name}");
        assert_eq!(loaded.reused_tokens(), 96, "{name}");
        all_is_back(&loaded);
        // Another cut has other layers in blocks that may be as large.
        let others = [Some(splits[0] + 1), Some(layers - splits[0]), None];
        let found = others.map(|layers| {
            let mut other = open(&file, &of(layers));
            (other.load_prefixes().unwrap().len(), small::answer(&mut other, &prompt, 20) == alone)
        });
        assert_eq!(found, [(0, true); 3], "{name}");
    }
}

#[test]
fn smollm2_starts_with_what_both_parts_have() {
    let Some(path) = SMOLLM2.path() else { return };
    let file = ModelFile::open(path).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    let text = "The sea is salty because rivers carry salts out of rocks into it, and because water leaves it and salt stays. So";
    let tokens = tokenizer.encode_prompt(text);
    let mut plain = open(&file, &Settings { prefix_cache: false, ..settings(None) });
    let alone = small::answer(&mut plain, &tokens, 20);
    let mut llm = open(&file, &settings(Some(13)));
    for _ in 0..2 {
        assert_eq!(answer(&mut llm, &tokens, 20), alone);
    }
    assert!(llm.reused_tokens() >= 16, "{}", llm.reused_tokens());
    all_is_back(&llm);
}
