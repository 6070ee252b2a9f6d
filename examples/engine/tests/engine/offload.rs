//! Layers on a device and layers on the host: the same answers for every split, and each side holds what its plan says.

use crate::common::{SMOLLM2, Temporary, tiny_file};
use memtier::{Bytes, PlanError, plan::Knob, plan::Value};
use memtier_engine::{EngineError, GpuLayers, Llm, ModelFile, Sampling, Settings, tokenizer::Tokenizer};
use memtier_model::write::TinyModel;

fn open(file: &Temporary) -> ModelFile {
    ModelFile::open(file.path()).unwrap()
}

fn settings(gpu_layers: Option<GpuLayers>) -> Settings {
    Settings {
        gpu_layers,
        budget: Bytes::mib(512),
        max_batch: 3,
        max_seq_len: 160,
        prefill_chunk: 24,
        threads: 2,
        // Cached blocks stay when their request has ended.
        prefix_cache: false,
        ..Settings::default()
    }
}

/// Two requests at once; what they say, and every layer's output and every logit of a third.
fn run(file: &ModelFile, settings: &Settings, prompts: &[Vec<u32>]) -> (Vec<Vec<u32>>, Vec<Vec<f32>>, Vec<f32>) {
    let mut llm = Llm::open(file, settings, &mut |_| ()).unwrap();
    let rows: Vec<_> = prompts.iter().map(|prompt| llm.admit(prompt, 24, Sampling::GREEDY).unwrap()).collect();
    let mut answers = vec![Vec::new(); prompts.len()];
    while llm.step(|token| answers[token.row].push(token.token)).unwrap() > 0 {}
    planned_is_carved(&llm);
    rows.iter().for_each(|row| llm.end(*row).unwrap());
    let (mut layers, mut logits) = (vec![Vec::new(); llm.arch().layers.len()], Vec::new());
    let mut probe = |layer: usize, x: &[f32]| layers[layer].extend_from_slice(x);
    llm.score(&prompts[0], &mut |_, row| logits.extend_from_slice(row), Some(&mut probe)).unwrap();
    for part in llm.parts() {
        assert_eq!(part.report.unplanned_acquisitions(), 0, "{}", part.name);
        assert!(part.report.pools.iter().all(|pool| pool.held.count() == 0), "{}: blocks are left", part.name);
    }
    (answers, layers, logits)
}

/// What a device has committed is what its plan granted, but for pools that grow into their grant.
fn planned_is_carved(llm: &Llm) {
    for part in llm.parts() {
        let report = &part.report;
        assert!(report.unclaimed.is_empty(), "{}: {:?}", part.name, report.unclaimed);
        for tier in &report.tiers {
            match tier.tier {
                // Charged so that the ends of pages have room.
                memtier::plan::Tier::Reserve => {}
                memtier::plan::Tier::Pooled => assert!(tier.committed <= tier.planned, "{}: {tier:?}", part.name),
                _ => assert_eq!(tier.committed, tier.planned, "{}: {tier:?}", part.name),
            }
        }
        assert!(report.device.peak <= part.budget(), "{}", part.name);
    }
}

#[test]
fn every_split_answers_the_same_to_the_bit() {
    let window = TinyModel { layers: 7, ..TinyModel::gemma3(5) };
    for (name, model) in [("llama", TinyModel { layers: 5, ..TinyModel::llama(5) }), ("gemma3", window)] {
        let most = u64::from(model.layers) + 1;
        let file = tiny_file(name, model);
        let file = open(&file);
        // One prompt is longer than a chunk and than the window, so that passes of both kinds are made.
        let prompts = [(3..80).map(|token| token * 3 % 280).collect(), vec![7, 8, 9]];
        let whole = run(&file, &settings(None), &prompts);
        assert!(whole.1.iter().all(|layer| !layer.is_empty()) && !whole.2.is_empty());
        for layers in 0..=most {
            let split = run(&file, &settings(Some(GpuLayers::Count(layers))), &prompts);
            assert!(split == whole, "{name} with {layers} layers on the device");
        }
    }
}

#[test]
fn a_prompt_slides_through_windows_on_both_sides_in_no_more_blocks_than_planned() {
    // Of seven layers the sixth has no window, so that both kinds are in front. One sequence, in chunks of many blocks: a chunk must
    // leave before the next one comes.
    let file = tiny_file("slides", TinyModel { layers: 7, ..TinyModel::gemma3(5) });
    let file = open(&file);
    let prompts = [(0..300).map(|token| token * 3 % 280).collect()];
    let one = |layers| Settings { max_batch: 1, max_seq_len: 360, prefill_chunk: 64, ..settings(layers) };
    let whole = run(&file, &one(None), &prompts);
    for layers in [5, 6] {
        assert!(run(&file, &one(Some(GpuLayers::Count(layers))), &prompts) == whole, "{layers} layers on the device");
    }
}

#[test]
fn smollm2_answers_the_same_with_a_few_layers_on_the_device() {
    let Some(path) = SMOLLM2.path() else { return };
    let file = ModelFile::open(path).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    let prompts = ["The sea is salty because", "One, two, three,"].map(|text| tokenizer.encode_prompt(text));
    let whole = run(&file, &settings(None), &prompts);
    for layers in [1, 13, 30] {
        let split = run(&file, &settings(Some(GpuLayers::Count(layers))), &prompts);
        assert!(split == whole, "{layers} layers on the device");
    }
}

/// Bytes of the plans of a split: the device's, the host's.
fn planned(file: &ModelFile, settings: &Settings) -> Vec<(String, u64)> {
    let plans = Llm::plan_only(file, settings).unwrap();
    plans.into_iter().map(|(name, plan)| (name, plan.total().count())).collect()
}

#[test]
fn auto_takes_the_longest_prefix_that_the_device_holds() {
    let tiny = tiny_file("auto", TinyModel { layers: 6, ..TinyModel::llama(5) });
    let file = open(&tiny);
    // With one sequence the pool has nothing to give up before a layer must.
    let with = |gpu_layers, budget: u64| {
        let vram_budget = Some(Bytes::new(budget));
        Settings { vram_budget, max_batch: 1, ..settings(Some(gpu_layers)) }
    };
    for layers in 1..=6 {
        let exact = planned(&file, &with(GpuLayers::Count(layers), 1 << 30))[0].1;
        // To the byte: with this budget so many, with one byte less one fewer.
        for (budget, expected) in [(exact, layers), (exact - 1, layers - 1)] {
            let auto = planned(&file, &with(GpuLayers::Auto, budget));
            let count = planned(&file, &with(GpuLayers::Count(expected), 1 << 30));
            assert_eq!(auto, count, "{layers} layers take {exact} bytes");
        }
    }
    assert_eq!(planned(&file, &with(GpuLayers::Auto, 1)).len(), 1, "nothing fits, and everything is on the host");
}

#[test]
fn a_refusal_names_the_device_and_its_lever_is_true() {
    let tiny = tiny_file("refused", TinyModel { layers: 6, ..TinyModel::llama(5) });
    let file = open(&tiny);
    let one = |layers| Settings { max_batch: 1, ..settings(Some(GpuLayers::Count(layers))) };
    let four = planned(&file, &one(4))[0].1;
    let mut settings = Settings { vram_budget: Some(Bytes::new(four)), ..one(6) };
    settings.locks.max_seq_len = true;
    settings.locks.prefill_chunk = true;
    let refused = Llm::open(&file, &settings, &mut |_| ()).err().expect("six layers in the room of four");
    assert!(refused.to_string().contains("device: all 6 layers"), "{refused}");
    let EngineError::DevicePlan { source: PlanError::DoesNotFit(failure), .. } = refused else {
        panic!("{refused}");
    };
    let lever = failure.levers().iter().find(|lever| lever.knob == Knob::GpuLayers).expect("fewer layers");
    assert!(lever.fits && lever.to == Value::Count(4), "{lever:?}");
    settings.gpu_layers = Some(GpuLayers::Count(4));
    assert!(Llm::open(&file, &settings, &mut |_| ()).is_ok());
}
