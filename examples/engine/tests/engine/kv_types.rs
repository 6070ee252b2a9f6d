//! Keys and values of every element type: what a block costs, that everything which treats blocks as bytes still does, and how far
//! logits move. Run optimised for the real models: `cargo test --release -p memtier-engine --test engine kv_types:: -- --nocapture`.

use crate::common::{GEMMA3, RealModel, SMOLLM2, fixture_text, logits, relative, tiny_file};
use crate::reference::log_softmax;
use crate::small::{answer, open, prompt, run, wide_models};
use memtier::{Bytes, plan::KvDtype};
use memtier_engine::{EngineError, Llm, ModelFile, Sampling, Settings, kv_types::KvTypes, tokenizer::Tokenizer};
use memtier_model::write::TinyModel;

/// The types with kernels, and the bytes of a head's row of 32 and of 64.
const TYPES: [(KvDtype, u64, u64); 6] = [
    (KvDtype::F16, 64, 128),
    (KvDtype::Bf16, 64, 128),
    (KvDtype::Q8_0, 34, 68),
    (KvDtype::Fp8Head, 34, 66),
    (KvDtype::Nvfp4, 22, 40),
    (KvDtype::Q4_0, 18, 36),
];

fn settings(types: KvTypes) -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 4,
        max_seq_len: 256,
        prefill_chunk: 32,
        threads: 2,
        kv_types: types,
        ..Settings::default()
    }
}

#[test]
fn a_block_costs_what_its_types_cost() {
    for (name, model) in wide_models() {
        let (layers, kv_heads) = (u64::from(model.layers), u64::from(model.kv_heads));
        let (file, windowed) = (tiny_file(&format!("cost-{name}"), model), name == "gemma3");
        let file = ModelFile::open(file.path()).unwrap();
        // Of seven layers of Gemma 3 one attends over everything.
        let groups = if windowed { vec![1, layers - 1] } else { vec![layers] };
        for (dtype, row, _) in TYPES {
            let llm = open(&file, &settings(KvTypes::all(dtype)));
            let blocks: Vec<u64> = llm.memory_report().pools.iter().map(|pool| pool.block.count()).collect();
            let wanted: Vec<u64> = groups.iter().map(|layers| layers * 2 * kv_heads * 16 * row).collect();
            assert_eq!(blocks, wanted, "{name} {dtype}");
            // The plan has the same bytes, to the block.
            let lines = llm.memory_plan().lines();
            let pool = lines.iter().find(|line| line.name.contains("global KV") && line.blocks.is_some()).unwrap();
            assert_eq!(pool.blocks.unwrap().block.count(), wanted[0], "{name} {dtype}");
            assert_eq!(llm.kv_per_token().count(), wanted.iter().sum::<u64>() / 16, "{name} {dtype}");
        }
    }
}

#[test]
fn layers_of_several_types_share_a_block() {
    let [(_, model), _] = wide_models();
    let file = tiny_file("mixed", model);
    let file = ModelFile::open(file.path()).unwrap();
    let tokens = prompt(60, 1);
    let of = |text: &str| {
        let mut llm = open(&file, &settings(text.parse().unwrap()));
        (llm.memory_report().pools[0].block.count(), logits(&mut llm, &tokens))
    };
    let (f16, exact) = of("rest=f16");
    let (q4_0, rough) = of("rest=q4_0");
    let (first, first_kept) = of("0=f16,rest=q4_0");
    let (last, last_kept) = of("1=f16,rest=q4_0");
    assert_eq!((first, last), ((f16 + q4_0) / 2, (f16 + q4_0) / 2), "two layers: one of each");
    let [rough, first, last] = [rough, first_kept, last_kept].map(|logits| relative(&logits, &exact));
    println!("logits move by {rough:.4} in q4_0, {first:.4} with layer 0 in f16, {last:.4} with layer 1");
    assert!(first > 0.0 && last > 0.0 && first != last && first < rough && last < rough, "{rough} {first} {last}");
}

#[test]
fn types_move_logits_by_their_steps() {
    // Measured 2026-11-30 on these models: bf16 0.004, fp8 0.05, q8_0 0.011, nvfp4 0.21, q4_0 0.17 at most.
    let most = [0.0, 0.02, 0.03, 0.12, 0.4, 0.4];
    for (name, model) in wide_models() {
        let file = tiny_file(&format!("moves-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let tokens = prompt(100, 2);
        let exact = logits(&mut open(&file, &settings(KvTypes::default())), &tokens);
        for ((dtype, ..), most) in TYPES.into_iter().zip(most) {
            let moved = relative(&logits(&mut open(&file, &settings(KvTypes::all(dtype))), &tokens), &exact);
            println!("{name} {dtype}: logits move by {moved:.5}");
            assert!(moved <= most && (moved > 0.0) == (dtype != KvDtype::F16), "{name} {dtype}: {moved}");
        }
    }
}

/// Cached, shared, forked, spilled, guessed ahead, batched, cut into other chunks: a block is bytes, and no token differs.
#[test]
fn answers_do_not_depend_on_how_blocks_came_about() {
    let prompts: Vec<Vec<u32>> =
        (1..4).map(|user| [prompt(70, 99), prompt(20 * user as usize, user)].concat()).collect();
    for (name, model) in wide_models() {
        let file = tiny_file(&format!("bytes-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        for (dtype, ..) in TYPES {
            let plain = Settings { prefix_cache: false, ..settings(KvTypes::all(dtype)) };
            let mut alone = open(&file, &Settings { prefill_chunk: 48, threads: 1, ..plain.clone() });
            let alone: Vec<_> = prompts.iter().map(|prompt| answer(&mut alone, prompt, 20)).collect();
            // Together, from the cache, guessing ahead.
            let mut llm = open(&file, &Settings { draft: 3, window_snapshots: 4, ..settings(KvTypes::all(dtype)) });
            for round in 0..2 {
                let rows: Vec<_> =
                    prompts.iter().map(|prompt| llm.admit(prompt, 20, Sampling::GREEDY).unwrap()).collect();
                run(&mut llm);
                for ((row, prompt), alone) in rows.into_iter().zip(&prompts).zip(&alone) {
                    assert_eq!(&llm.tokens(row).unwrap()[prompt.len()..], alone, "{name} {dtype}, round {round}");
                    llm.end(row).unwrap();
                }
            }
            assert!(llm.reused_tokens() >= 3 * 64, "{name} {dtype}: {}", llm.reused_tokens());
            // Two answers from one prompt, the second forked in the middle of a block.
            let first = llm.admit(&prompts[0], 20, Sampling::GREEDY).unwrap();
            (0..6).for_each(|_| _ = llm.step(|_| ()).unwrap());
            let second = llm.fork(first, Sampling::GREEDY).unwrap();
            run(&mut llm);
            for row in [first, second] {
                assert_eq!(&llm.tokens(row).unwrap()[prompts[0].len()..], alone[0], "{name} {dtype}: forked");
                llm.end(row).unwrap();
            }
            if name == "llama" {
                // A pool that holds one of them: cached blocks go to the second tier and come back.
                let tiers = Settings { max_batch: 1, cold_blocks: 32, ..settings(KvTypes::all(dtype)) };
                let mut llm = open(&file, &Settings { max_seq_len: 160, ..tiers });
                for _ in 0..2 {
                    for (prompt, alone) in prompts.iter().zip(&alone) {
                        assert_eq!(&answer(&mut llm, prompt, 20), alone, "{dtype}: spilled");
                    }
                }
                let stats = llm.tier_stats().unwrap();
                assert!(stats.restored > 0, "{dtype}: {stats:?}");
            }
        }
    }
}

#[test]
fn what_no_type_can_hold_is_refused_with_the_remedy() {
    let file = tiny_file("narrow", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let refused = |types: KvTypes| match Llm::plan_only(&file, &settings(types)) {
        Err(error @ EngineError::Setting { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    // Heads of 16.
    let text = refused(KvTypes::all(KvDtype::Q4_0));
    assert!(
        text.starts_with("kv-type is q4_0: heads of layer 0 have 16 elements, no multiple of 32: use f16"),
        "{text}"
    );
    assert!(refused("1=q8_0".parse().unwrap()).contains("layer 1"));
    assert!(refused("1=nvfp4".parse().unwrap()).contains("heads of layer 1 have 16 elements, no multiple of 32"));
    assert!(refused(KvTypes::all(KvDtype::Q5_1)).contains("use f16, bf16, fp8, q8_0, nvfp4 or q4_0"));
    let text = refused("2=f16".parse().unwrap());
    assert_eq!(text, "kv-type-layers is 2: the model has layers 0 to 1");
    // fp8 has a scale for a whole row.
    assert!(Llm::plan_only(&file, &settings(KvTypes::all(KvDtype::Fp8Head))).is_ok());
    let low = Settings { kv_low: Some(KvDtype::Fp8Head), ..settings(KvTypes::all(KvDtype::Fp8Head)) };
    assert!(Llm::plan_only(&file, &low).unwrap_err().to_string().contains("smaller than --kv-type"));
}

/// What rotated blocks are called by, whoever saved them.
#[test]
fn rows_that_were_rotated_are_not_found_where_none_are() {
    let [(_, model), _] = wide_models();
    let file = tiny_file("turned", model);
    let file = ModelFile::open(file.path()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = || Some(folder.path().join("store"));
    let with = |kv_rotation, types| Settings { kv_rotation, prefix_store: store(), ..settings(types) };
    let tokens = prompt(100, 3);
    let q4_0 = || KvTypes::all(KvDtype::Q4_0);
    let mut llm = open(&file, &with(true, q4_0()));
    let said = answer(&mut llm, &tokens, 20);
    let saved = llm.save_prefixes().unwrap().unwrap();
    assert!(saved.count() >= 6, "{saved:?}");
    let loads = |kv_rotation, types| {
        let mut llm = open(&file, &with(kv_rotation, types));
        let found = llm.load_prefixes().unwrap().len();
        let said = answer(&mut llm, &tokens, 20);
        (found, llm.reused_tokens(), said)
    };
    assert_eq!(loads(true, q4_0()), (1, 96, said));
    let (found, reused, _) = loads(false, q4_0());
    assert_eq!((found, reused), (0, 0), "rows as they are");
    // Where nothing is rotated the setting is no part of a name.
    let mut llm = open(&file, &with(true, KvTypes::default()));
    answer(&mut llm, &tokens, 20);
    llm.save_prefixes().unwrap();
    let f16 = [true, false].map(|kv_rotation| loads(kv_rotation, KvTypes::default()).0);
    assert_eq!(f16, [1, 1]);
}

/// Perplexity over the beginning of the text, teacher-forced in one context.
fn perplexity(model: RealModel, types: KvTypes, kv_rotation: bool, tokens: usize) -> Option<(f64, u64)> {
    let file = ModelFile::open(model.path()?).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    let all = Settings { max_batch: 16, max_seq_len: 2048, prefill_chunk: 512, prefix_cache: false, ..settings(types) };
    let mut llm = open(&file, &Settings { kv_rotation, ..all });
    let mut ids = tokenizer.encode_prompt(&fixture_text("prose.txt"));
    ids.truncate(tokens);
    let (mut nll, mut count) = (0.0, 0);
    let see = &mut |position: usize, logits: &[f32]| {
        if let Some(next) = ids.get(position + 1) {
            nll -= log_softmax(logits)[*next as usize];
            count += 1;
        }
    };
    llm.score(&ids, see, None).unwrap();
    Some(((nll / f64::from(count)).exp(), llm.kv_per_token().count()))
}

/// The most that each type may move perplexity by, relative to f16. `MEMTIER_KV_TYPES="0-3=f16,rest=nvfp4;rest=q8_0"` tells what these cost
/// instead.
fn perplexity_stays(model: RealModel, most: [f64; 7]) {
    let own =
        TYPES.map(|(dtype, ..)| (KvTypes::all(dtype), true)).into_iter().chain([(KvTypes::all(KvDtype::Q4_0), false)]);
    let kinds: Vec<_> = match std::env::var("MEMTIER_KV_TYPES") {
        Ok(asked) => [KvTypes::default()]
            .into_iter()
            .chain(asked.split(';').map(|types| types.parse().unwrap()))
            .map(|types| (types, true, f64::INFINITY))
            .collect(),
        Err(_) => own.zip(most).map(|((types, rotates), most)| (types, rotates, most)).collect(),
    };
    let mut exact = None;
    for (types, rotates, most) in kinds {
        let Some((perplexity, bytes)) = perplexity(model, types.clone(), rotates, TOKENS) else { return };
        let exact = *exact.get_or_insert(perplexity);
        let off = perplexity / exact - 1.0;
        let how = if rotates { "" } else { ", rows as they are" };
        let name = model.name;
        println!("{name} {types}{how}: {bytes} bytes a token, perplexity {perplexity:.4}, {:+.3} %", 100.0 * off);
        assert!(off.abs() <= most, "{name} {types}{how}: {off}");
    }
}

/// Of the text's 1,900 or so.
const TOKENS: usize = 800;

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_perplexity_stays_near_that_of_f16() {
    perplexity_stays(SMOLLM2, [0.0, 0.01, 0.005, 0.01, 0.2, 0.1, 0.2]);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_perplexity_stays_near_that_of_f16() {
    perplexity_stays(GEMMA3, [0.0, 0.01, 0.005, 0.01, 0.2, 0.13, 0.2]);
}
