//! The engine on a GPU beside the engine on the CPU and the plain f32 path: logits, answers, perplexity, graphs, growth, and answers
//! that do not depend on what is served beside them, keys and values of fp8. Skipped with a sentence where there is no
//! CUDA device; `MEMTIER_REQUIRE_GPU` makes that a failure. Needs `--features cuda` and, for a device, `MEMTIER_KERNELS`.
#![cfg(feature = "cuda")]

mod common;
mod reference;

use common::{
    GEMMA3, RealModel, SMOLLM2, Temporary, fixture_text,
    gpu::{for_gpu, on_gpu, sized},
    quantised::few_bits,
    tiny_file,
};
use memtier::{Bytes, Cuda, plan::KvDtype};
use memtier_engine::{
    EngineError, Llm, ModelFile, Sampling, Settings,
    arch::Arch,
    compute::Compute,
    cuda::Gpu,
    kv_types::KvTypes,
    tokenizer::Tokenizer,
    weights::{GpuWeights, Weights},
};
use memtier_model::{ModelDescription, TensorType, write::TinyModel};
use reference::{KvPrecision, LogitsOf, Reference, log_softmax};
use serde::Deserialize;

fn gpu() -> Option<Gpu> {
    common::gpu::gpu(4)
}

fn settings(gpu: &Gpu) -> Settings {
    Settings {
        budget: Bytes::gib(1),
        max_batch: 6,
        max_seq_len: 512,
        prefill_chunk: sized(gpu, 96, 32),
        threads: 4,
        gpu_weights: Some(GpuWeights::File),
        ..Settings::default()
    }
}

/// Tiny models with heads that the attention kernels take, and more tokens than a window. Files of their own for each test.
fn tiny(test: &str) -> [(&'static str, Temporary); 3] {
    let gemma = TinyModel { window: 24, ..for_gpu(TinyModel::gemma3(31)) };
    let wide = TinyModel { heads: 2, kv_heads: 1, head_dim: 256, window: 40, ..for_gpu(TinyModel::gemma3(32)) };
    [
        ("llama", tiny_file(&format!("{test}-llama"), TinyModel { heads: 6, ..for_gpu(TinyModel::llama(30)) })),
        ("gemma3", tiny_file(&format!("{test}-gemma3"), gemma)),
        ("gemma3-d256", tiny_file(&format!("{test}-wide"), wide)),
    ]
}

/// The first of them with factors of its frequencies, as Llama 3.1 and later have: short waves as they are, long ones stretched by 8.
fn stretched(test: &str) -> (&'static str, Temporary) {
    let model = TinyModel { heads: 6, ..for_gpu(TinyModel::llama(30)) };
    let factors: Vec<f32> = (0..32).map(|pair| (pair as f32 / 2.0 - 3.0).clamp(1.0, 8.0)).collect();
    let mut file = model.to_gguf().unwrap();
    file.tensor_f32("rope_freqs.weight", &[32], &factors).unwrap();
    ("llama-stretched", Temporary::new(&format!("{test}-stretched.gguf"), &file.to_bytes()))
}

/// All of them, or the ones of these names where a device is slow.
fn some(
    gpu: &Gpu,
    models: impl IntoIterator<Item = (&'static str, Temporary)>,
    names: &[&str],
) -> Vec<(&'static str, Temporary)> {
    models.into_iter().filter(|(name, _)| sized(gpu, true, names.contains(name))).collect()
}

fn logits<S: Compute>(llm: &mut Llm<S>, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    llm.score(tokens, &mut |_, row| rows.push(row.to_vec()), None).unwrap();
    rows
}

/// Answers all prompts at once, `answer` tokens each.
fn generate<S: Compute>(llm: &mut Llm<S>, prompts: &[Vec<u32>], answer: usize, sampling: Sampling) -> Vec<Vec<u32>> {
    let rows: Vec<_> = prompts.iter().map(|prompt| llm.admit(prompt, answer, sampling).unwrap()).collect();
    let mut answers = vec![Vec::new(); llm.settings().max_batch];
    while llm.step(|token| answers[token.row].push(token.token)).unwrap() > 0 {}
    rows.iter().for_each(|row| llm.end(*row).unwrap());
    rows.into_iter().map(|row| std::mem::take(&mut answers[row])).collect()
}

fn rms(values: impl Iterator<Item = f32>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += f64::from(value).powi(2);
        count += 1;
    }
    (sum / f64::from(count.max(1))).sqrt()
}

/// Root mean square of the difference, and of `b`.
fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> (f64, f64) {
    let difference = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| a - b);
    (rms(difference), rms(b.iter().flatten().copied()))
}

/// Every token of an answer is what the plain f32 path likes best after the same tokens, or so close to it that `tie` decides.
/// Says where it is not the same.
fn follows(reference: &Reference, name: &str, prompt: &[u32], answer: &[u32], tie: f64) -> usize {
    let all: Vec<u32> = prompt.iter().chain(&answer[..answer.len() - 1]).copied().collect();
    let rows = reference.session(KvPrecision::F16).extend(&all, LogitsOf::From(prompt.len() - 1)).logits;
    assert_eq!(rows.len(), answer.len());
    let mut ties = 0;
    for (index, (token, row)) in answer.iter().zip(&rows).enumerate() {
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        if best as u32 == *token {
            continue;
        }
        ties += 1;
        let (chosen, most) = (row[*token as usize], row[best]);
        println!("{name}, token {index}: the GPU takes {token} ({chosen:.4} in f32), f32 takes {best} ({most:.4})");
        assert!(f64::from(most - chosen) < tie, "{name}: no tie: {chosen} against {most}, {tie} decides");
    }
    ties
}

fn prompts(gpu: &Gpu, vocab: u32) -> Vec<Vec<u32>> {
    let prompt = |length: u32, seed: u32| (0..length).map(|i| 3 + (i * i * 7 + i * seed) % (vocab - 3)).collect();
    // One token; a block and its neighbours; more than a chunk, and than a window.
    let long = sized(gpu, [200, 70], [44, 41]);
    vec![prompt(1, 5), prompt(15, 11), prompt(16, 13), prompt(17, 17), prompt(long[0], 19), prompt(long[1], 23)]
}

#[test]
fn tiny_models_give_what_the_cpu_gives() {
    let Some(gpu) = gpu() else { return };
    let models = tiny("tiny_models_").into_iter().chain([stretched("tiny_models_"), few_bits("tiny_models_")]);
    for (name, path) in some(&gpu, models, &["llama", "gemma3-d256", "llama-stretched", "llama-few-bits"]) {
        let file = ModelFile::open(path.path()).unwrap();
        let reference = Reference::open(path.path());
        let mut cpu = Llm::open(&file, &settings(&gpu), &mut |_| ()).unwrap();
        // Passes of more rows than tiles are multiplied with.
        let mut here = on_gpu(&gpu, &file, &Settings { prefill_chunk: 96, ..settings(&gpu) });
        let long: Vec<u32> = prompts(&gpu, 288)[4].clone();
        let (ours, theirs) = (logits(&mut here, &long), logits(&mut cpu, &long));
        let (noise, size) = apart(&ours, &theirs);
        println!("{name}: logits {noise:.4} from the CPU's, of {size:.3}: {:.4}", noise / size);
        // Beside weights of few bits the CPU rounds its inputs to eight.
        let most = if name == "llama-few-bits" { 0.04 } else { 0.02 };
        assert!(noise / size < most, "{name}: logits are further apart than bf16 makes them");
        let exact = reference.session(KvPrecision::F16).extend(&long, LogitsOf::From(0)).logits;
        let (noise, size) = apart(&ours, &exact);
        println!("{name}: logits {noise:.4} from f32, of {size:.3}: {:.4}", noise / size);
        assert!(noise / size < 0.02, "{name}: logits are further from f32 than bf16 makes them");

        let prompts = prompts(&gpu, 288);
        let answer = sized(&gpu, 40, 5);
        let answers = generate(&mut here, &prompts, answer, Sampling::GREEDY);
        let ties: usize = prompts
            .iter()
            .zip(&answers)
            .map(|(prompt, tokens)| {
                assert_eq!(tokens.len(), answer);
                follows(&reference, name, prompt, tokens, 8.0 * noise)
            })
            .sum();
        println!("{name}: {ties} of {} tokens are near ties", answer * prompts.len());
        // Alone, a request goes the same way: another kernel multiplies, so only up to a tie.
        let alone = generate(&mut here, &prompts[4..5], answer, Sampling::GREEDY);
        follows(&reference, name, &prompts[4], &alone[0], 8.0 * noise);
    }
}

#[test]
fn keys_and_values_of_few_bits_are_read_as_the_cpu_reads_its_own() {
    let Some(gpu) = gpu() else { return };
    let answer = sized(&gpu, 12, 3);
    // All layers, and all but the first, which is f16 in the same blocks. q8_0 is rounded to f16 when it is read, on both.
    let types = [KvTypes::all(KvDtype::Fp8Head), "0=f16,rest=q8_0".parse().unwrap(), KvTypes::all(KvDtype::Nvfp4)];
    for (name, path) in some(&gpu, tiny("keys_and_val"), &["llama"]) {
        let file = ModelFile::open(path.path()).unwrap();
        let (long, reference) = (prompts(&gpu, 288)[4].clone(), Reference::open(path.path()));
        let exact = reference.session(KvPrecision::F16).extend(&long, LogitsOf::From(0)).logits;
        let f16 = logits(&mut Llm::open(&file, &settings(&gpu), &mut |_| ()).unwrap(), &long);
        for kv_types in &types {
            let settings = Settings { kv_types: kv_types.clone(), ..settings(&gpu) };
            let theirs = logits(&mut Llm::open(&file, &settings, &mut |_| ()).unwrap(), &long);
            // So that what is found of a prompt changes no bit.
            let settings = Settings { batch_invariant: true, ..settings };
            let mut here = on_gpu(&gpu, &file, &settings);
            let ours = logits(&mut here, &long);
            // What fewer bits cost on the CPU, and on the GPU; and how far apart the two are, which round alike.
            let (cost, size) = apart(&theirs, &f16);
            let ((ours_cost, _), (apart, _)) = (apart(&ours, &exact), apart(&ours, &theirs));
            println!(
                "{name}, {kv_types}: logits of {size:.3}; it moves the CPU's {cost:.4}, the GPU's are {ours_cost:.4} from f32, {apart:.4} apart"
            );
            assert!(cost > 0.001 * size, "{name}, {kv_types}: it costs nothing, so nothing was rounded");
            assert!(ours_cost < 1.5 * cost + 0.02 * size, "{name}, {kv_types}: costs more than on the CPU");
            // Eight-bit integers are the same ones on both: only f16 and the order of sums are left. A vector of e4m3 falls to another
            // value wherever sums differ. NVFP4 has the same scales on both, so only what is near the middle of two of its steps does.
            let rounding = match kv_types.rest {
                KvDtype::Q8_0 => 0.0,
                KvDtype::Nvfp4 => 0.6 * cost,
                _ => 1.5 * cost,
            };
            assert!(apart < rounding + 0.02 * size, "{name}, {kv_types}: far from the CPU's");
            let prompts = prompts(&gpu, 288);
            let answers = generate(&mut here, &prompts, answer, Sampling::GREEDY);
            let ties: usize = prompts
                .iter()
                .zip(&answers)
                .map(|(prompt, tokens)| follows(&reference, name, prompt, tokens, 8.0 * ours_cost))
                .sum();
            println!("{name}, {kv_types}: {ties} of {} tokens are near ties", answer * prompts.len());
            // What is cached is found, and replayed passes read the same.
            let mut graphs = on_gpu(&gpu, &file, &Settings { graphs: 6, window_snapshots: 8, ..settings });
            for _ in 0..2 {
                assert_eq!(generate(&mut graphs, &prompts, answer, Sampling::GREEDY), answers, "{name}, {kv_types}");
            }
            assert!(graphs.reused_tokens() > 0 && graphs.graph_stats().reuses > 2);
        }
    }
}

#[test]
fn a_block_of_few_bits_has_its_bytes() {
    let Some(gpu) = gpu() else { return };
    let [(_, path), ..] = tiny("a_block_of_f");
    let file = ModelFile::open(path.path()).unwrap();
    let blocks =
        |kv_types: KvTypes| on_gpu(&gpu, &file, &Settings { kv_types, ..settings(&gpu) }).kv_per_token().count();
    let (f16, fp8) = (blocks(KvTypes::default()), blocks(KvTypes::all(KvDtype::Fp8Head)));
    // 64 elements: 128 bytes, or 64 and a scale of four.
    assert_eq!(fp8 * 128, f16 * 68, "{f16} bytes a token, {fp8} in fp8");
    assert_eq!(blocks(KvTypes::all(KvDtype::Q8_0)), fp8, "two f16 for 64 in q8_0");
    // 32 bytes, four ue4m3 and an f32.
    assert_eq!(blocks(KvTypes::all(KvDtype::Nvfp4)) * 128, f16 * 40, "of {f16} bytes a token in f16");
}

#[test]
fn weights_of_few_bits_take_what_they_have_in_the_plan_and_on_the_device() {
    let Some(gpu) = gpu() else { return };
    let (_, path) = few_bits("weights_of_f");
    let file = ModelFile::open(path.path()).unwrap();
    let description = ModelDescription::from_gguf(file.gguf()).unwrap();
    let weights = |gpu_weights: GpuWeights| {
        let arch = Arch { gpu_weights, ..Arch::new(&file, &description, 16).unwrap() };
        let dims = Cuda::prepare(arch).unwrap().weights;
        let priced = Weights::price(&dims).unwrap().count();
        // What the plan says, whole pieces of the device's memory.
        let plan = Llm::<Cuda>::plan_on(&gpu, &file, &Settings { gpu_weights: Some(gpu_weights), ..settings(&gpu) })
            .unwrap()
            .remove(0)
            .1;
        let planned = plan.line("Weights").unwrap().asked.count();
        assert!((priced..priced + (2 << 20)).contains(&planned), "{priced} bytes of weights, {planned} planned");
        priced
    };
    // Sixteenths of a bit: a scale and an offset for 32 weights of four bits, a scale for 16 of six.
    let bits = |name: &str, tensor_type: TensorType| match tensor_type {
        TensorType::F32 => 32 * 16,
        // Beside one without tiles, or that.
        _ if [
            "blk.1.attn_q.weight",
            "blk.1.attn_k.weight",
            "blk.1.attn_v.weight",
            "blk.1.ffn_gate.weight",
            "blk.1.ffn_up.weight",
        ]
        .contains(&name) =>
        {
            16 * 16
        }
        TensorType::Q4_0 | TensorType::Q4_1 | TensorType::Q4_K => 5 * 16,
        TensorType::Q5_0 => 88,
        TensorType::Q6_K => 7 * 16,
        TensorType::Q8_0 => 136,
        other => panic!("{other:?}"),
    };
    let tensors = file.gguf().tensors();
    let expected = tensors.iter().map(|it| it.shape.elements().unwrap() * bits(&it.name, it.tensor_type) / 128);
    let (expected, few, wide) = (expected.sum::<u64>(), weights(GpuWeights::File), weights(GpuWeights::Bf16));
    println!("{few} bytes of weights, {expected} of them in tensors, {wide} in bf16");
    // Each tensor begins at a multiple of 256; what the model lacks takes as much, and its head sixteen rows of f32.
    let beside = (tensors.len() as u64 + 16) * 256 + 16 * 256 * 4;
    assert!((expected..=expected + beside).contains(&few));
    assert!(few < wide);
}

#[test]
fn replayed_passes_choose_what_launched_ones_choose() {
    let Some(gpu) = gpu() else { return };
    let answer = sized(&gpu, 60, 5);
    let models = tiny("replayed_pas").into_iter().chain([few_bits("replayed_pas")]);
    for (name, file) in some(&gpu, models, &["gemma3", "llama-few-bits"]) {
        let file = ModelFile::open(file.path()).unwrap();
        let mut eager = on_gpu(&gpu, &file, &settings(&gpu));
        let mut graphs = on_gpu(&gpu, &file, &Settings { graphs: 6, ..settings(&gpu) });
        // At this temperature a token depends on every bit of every logit.
        let warm = Sampling { temperature: 1.5, top_p: 0.95, top_k: 0, seed: 7 };
        for sampling in [Sampling::GREEDY, warm] {
            let prompts = prompts(&gpu, 288);
            let (a, b) =
                (generate(&mut eager, &prompts, answer, sampling), generate(&mut graphs, &prompts, answer, sampling));
            assert_eq!(a, b, "{name}: a replayed pass chose another token");
        }
        let stats = graphs.graph_stats();
        assert!(stats.reuses > answer as u64, "{stats:?}");
        assert_eq!(graphs.memory_report().unplanned_acquisitions(), 0);
    }
}

/// Answers in a batch with others that come and go, and alone, have the same tokens at a temperature at which a token depends on
/// every bit of its logits. Gives whether they would have been others without the setting: whether this can be seen at all.
fn does_not_depend_on_the_batch(gpu: &Gpu, name: &str, file: &ModelFile, prompts: &[Vec<u32>], answer: usize) -> bool {
    let warm = Sampling { temperature: 1.5, top_p: 0.95, top_k: 0, seed: 7 };
    let base = Settings { batch_invariant: true, prefix_cache: false, max_seq_len: 1024, ..settings(gpu) };
    for graphs in [0, 6] {
        let mut llm = on_gpu(gpu, file, &Settings { graphs, budget: Bytes::gib(3), ..base.clone() });
        let alone: Vec<_> = prompts
            .iter()
            .map(|prompt| generate(&mut llm, std::slice::from_ref(prompt), answer, warm).remove(0))
            .collect();
        assert_eq!(generate(&mut llm, prompts, answer, warm), alone, "{name}: others in the batch changed an answer");
        // Beside others that begin while it answers: passes of prompts and answers together, and prompts cut elsewhere.
        let mut answers = vec![Vec::new(); llm.settings().max_batch];
        let mut rows = Vec::new();
        for prompt in prompts {
            rows.push(llm.admit(prompt, answer, warm).unwrap());
            for _ in 0..3 {
                llm.step(|token| answers[token.row].push(token.token)).unwrap();
            }
        }
        while llm.step(|token| answers[token.row].push(token.token)).unwrap() > 0 {}
        let apart: Vec<_> = rows.iter().map(|row| std::mem::take(&mut answers[*row])).collect();
        assert_eq!(apart, alone, "{name}: others that came later changed an answer");
        rows.into_iter().for_each(|row| llm.end(row).unwrap());
    }
    // By their bits: the logits of each position, so many of them a pass.
    let by_pieces = [1, 2, 6].map(|max_batch| {
        let mut llm = on_gpu(gpu, file, &Settings { max_batch, budget: Bytes::gib(3), ..base.clone() });
        logits(&mut llm, &prompts[5][..sized(gpu, 70, 9).min(prompts[5].len())])
    });
    let bits = by_pieces.each_ref().map(|rows| rows.iter().flatten().map(|logit| logit.to_bits()).collect::<Vec<_>>());
    assert!(bits[0] == bits[1] && bits[0] == bits[2], "{name}: rows of one pass changed each other's logits");
    let mut llm = on_gpu(gpu, file, &Settings { batch_invariant: false, budget: Bytes::gib(3), ..base });
    let together = generate(&mut llm, prompts, answer, warm);
    prompts.iter().zip(&together).any(|(prompt, together)| {
        let alone = generate(&mut llm, std::slice::from_ref(prompt), answer, warm);
        alone[0] != *together
    })
}

#[test]
fn answers_do_not_depend_on_the_batch_where_that_is_asked_for() {
    let Some(gpu) = gpu() else { return };
    let mut seen = false;
    let models = tiny("answers_do_n").into_iter().chain([few_bits("answers_do_n")]);
    for (name, path) in some(&gpu, models, &["llama", "llama-few-bits"]) {
        let file = ModelFile::open(path.path()).unwrap();
        seen |= does_not_depend_on_the_batch(&gpu, name, &file, &prompts(&gpu, 288), sized(&gpu, 60, 4));
    }
    for model in sized(&gpu, vec![SMOLLM2, GEMMA3], Vec::new()) {
        let Some(path) = model.path() else { continue };
        let file = ModelFile::open(&path).unwrap();
        seen |= does_not_depend_on_the_batch(&gpu, model.name, &file, &prompts(&gpu, 10_000), 100);
    }
    assert!(seen, "nothing depends on the batch without the setting either: this test sees nothing");
}

#[test]
fn the_pool_grows_under_recorded_passes() {
    let Some(gpu) = gpu() else { return };
    let [(_, file), ..] = tiny("the_pool_gro");
    let file = ModelFile::open(file.path()).unwrap();
    // All six prompts in one pass, so that their answers are as long.
    let settings = Settings { graphs: 6, max_batch: 6, prefill_chunk: 96, ..settings(&gpu) };
    let mut llm = on_gpu(&gpu, &file, &settings);
    let (prompt, answer) = (prompts(&gpu, 288)[1].clone(), sized(&gpu, 30, 4));
    let first = generate(&mut llm, std::slice::from_ref(&prompt), answer, Sampling::GREEDY);
    let before = llm.memory_report().device.planned_commits;
    // Six requests of nearly the longest length: more blocks than were committed. Those that have just ended may still be on their way
    // back, so not of all blocks.
    let rows: Vec<_> = (0..6).map(|_| llm.admit(&prompt, 450, Sampling::GREEDY).unwrap()).collect();
    let report = llm.memory_report();
    assert!(report.device.planned_commits > before, "nothing was committed");
    let mut answers = vec![Vec::new(); 6];
    for _ in 0..sized(&gpu, 40, 6) {
        llm.step(|token| answers[token.row].push(token.token)).unwrap();
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "equal requests differ in grown blocks");
    let report = llm.memory_report();
    assert_eq!((report.unplanned_acquisitions(), report.device.pinned_acquisitions), (0, 0));
    rows.into_iter().for_each(|row| llm.end(row).unwrap());
    let again = generate(&mut llm, std::slice::from_ref(&prompt), answer, Sampling::GREEDY);
    assert_eq!(again, first, "growth changed an answer");
}

#[test]
fn what_is_not_served_on_a_gpu_is_refused() {
    let Some(gpu) = gpu() else { return };
    let small = tiny_file("gpu-small-heads", TinyModel::llama(1));
    let file = ModelFile::open(small.path()).unwrap();
    let refused = Llm::<Cuda>::open_on(gpu.clone(), &file, &settings(&gpu), None, &mut |_| ()).err().unwrap();
    assert!(refused.to_string().contains("heads of 16 elements on a GPU"), "{refused}");
    let [(_, file), ..] = tiny("what_is_not_");
    let file = ModelFile::open(file.path()).unwrap();
    let few = Settings { budget: Bytes::mib(1), ..settings(&gpu) };
    let refused = Llm::<Cuda>::open_on(gpu, &file, &few, None, &mut |_| ()).err().unwrap();
    assert!(matches!(refused, EngineError::Plan(_)), "{refused}");
}

#[derive(Deserialize)]
struct Perplexity {
    text: String,
}

/// Teacher-forced over the first tokens of the text, on the GPU and in f32.
fn perplexity(name: &str, model: RealModel, tokenizer: &Tokenizer, reference: &Reference, here: &mut Llm<Cuda>) {
    let fixture: Perplexity = model.fixture("perplexity");
    let mut ids = tokenizer.encode_prompt(&fixture_text(&fixture.text));
    ids.truncate(512);
    let of = |rows: &[Vec<f32>]| {
        let scored = rows.iter().zip(&ids[1..]);
        let nll: f64 = scored.map(|(row, next)| -log_softmax(row)[*next as usize]).sum();
        (nll / (ids.len() - 1) as f64).exp()
    };
    let ours = of(&logits(here, &ids));
    let exact = of(&reference.session(KvPrecision::F16).extend(&ids, LogitsOf::From(0)).logits);
    let off = ours / exact - 1.0;
    println!("{name}: perplexity {ours:.4}, in f32 {exact:.4}: {:+.3} %", off * 100.0);
    assert!(off.abs() < 0.005, "{name}: {ours} against {exact}");
}

fn real(model: RealModel) {
    let Some(gpu) = gpu() else { return };
    if !sized(&gpu, true, false) {
        println!("skipped: a real model takes minutes on an emulated device; `MEMTIER_EMULATED_LONG` runs it");
        return;
    }
    let Some(path) = model.path() else { return };
    let file = ModelFile::open(&path).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    let settings = Settings { budget: Bytes::gib(3), max_seq_len: 1024, ..settings(&gpu) };
    let mut cpu = Llm::open(&file, &settings, &mut |_| ()).unwrap();
    let text = "The sea is salty because rivers carry minerals from the rocks of the land into it, and when its water \
                evaporates they stay behind. Over hundreds of millions of years";
    let ids = tokenizer.encode_prompt(text);
    let (theirs, reference) = (logits(&mut cpu, &ids), Reference::open(&path));
    let exact = reference.session(KvPrecision::F16).extend(&ids, LogitsOf::From(0)).logits;
    let prompts = ["Why is the sky blue?", text, "One, two, three,"].map(|text| tokenizer.encode_prompt(text));
    for weights in [GpuWeights::File, GpuWeights::Bf16] {
        let name = format!("{}, weights {weights:?}", model.name);
        let own = Settings { graphs: 6, gpu_weights: Some(weights), ..settings.clone() };
        let mut here = on_gpu(&gpu, &file, &own);
        let ours = logits(&mut here, &ids);
        let (noise, size) = apart(&ours, &theirs);
        println!("{name}: logits {noise:.4} from the CPU's, of {size:.3}: {:.4}", noise / size);
        assert!(noise / size < 0.05, "logits are off");
        let (noise, size) = apart(&ours, &exact);
        println!("{name}: logits {noise:.4} from f32, of {size:.3}: {:.4}", noise / size);
        assert!(noise / size < 0.05, "logits are far from f32");
        perplexity(&name, model, &tokenizer, &reference, &mut here);
        let answers = generate(&mut here, &prompts, 64, Sampling::GREEDY);
        for (prompt, answer) in prompts.iter().zip(&answers) {
            let ties = follows(&reference, &name, prompt, answer, 8.0 * noise);
            println!("{name}: {ties} of {} tokens are near ties", answer.len());
        }
        let report = here.memory_report();
        assert_eq!((report.unplanned_acquisitions(), report.device.pinned_acquisitions), (0, 0));
    }
}

#[test]
fn smollm2_gives_what_the_cpu_gives() {
    real(SMOLLM2);
}

#[test]
fn gemma3_gives_what_the_cpu_gives() {
    real(GEMMA3);
}
