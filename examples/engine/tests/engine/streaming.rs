//! Sequences that run past their planned length: held to a plain implementation of StreamingLLM, in constant memory, with perplexity
//! that stays. The last on a real model: `cargo test --release -p memtier-engine --test engine streaming:: -- --nocapture`.

use crate::common::{SMOLLM2, fixture_text, logits, relative, tiny_file};
use crate::reference::{LogitsOf, Reference, log_softmax};
use crate::small::{end, open, prompt, wide_models};
use memtier::{Bytes, plan::KvDtype};
use memtier_engine::{
    EngineError, Llm, ModelFile, Sampling, Settings, Streaming, kv_types::KvTypes, tokenizer::Tokenizer,
};
use memtier_model::write::TinyModel;

/// 96 tokens a sequence, of which the first 16 and the latest 40 stay.
fn settings() -> Settings {
    Settings {
        budget: Bytes::gib(2),
        max_batch: 2,
        max_seq_len: 96,
        prefill_chunk: 32,
        threads: 2,
        prefix_cache: false,
        streaming: Some(Streaming { sinks: 16, window: 40, most: 2000 }),
        ..Settings::default()
    }
}

/// Blocks that requests hold of the pool for the full context.
fn held(llm: &Llm) -> u64 {
    llm.memory_report().pools[0].held.count()
}

/// Runs to the end; the most blocks that were held between passes.
fn run(llm: &mut Llm) -> u64 {
    let mut most = held(llm);
    while llm.step(|_| ()).unwrap() > 0 {
        most = most.max(held(llm));
    }
    most
}

#[test]
fn logits_are_those_of_a_plain_implementation() {
    for (name, model) in wide_models() {
        let file = tiny_file(&format!("plain-{name}"), model);
        let reference = Reference::open(file.path());
        let mut llm = open(&ModelFile::open(file.path()).unwrap(), &settings());
        // Twice the planned length.
        let tokens = prompt(200, 1);
        let plain = reference.streaming(16, 40).extend(&tokens, LogitsOf::From(0)).logits.concat();
        let whole = reference.streaming(16, 1000).extend(&tokens, LogitsOf::From(0)).logits.concat();
        let found = logits(&mut llm, &tokens);
        let (off, gone) = (relative(&found, &plain), relative(&whole, &plain));
        // By position, late ones apart: an error of places grows with the gap.
        let late = 140 * llm.arch().vocab();
        let late = relative(&found[late..], &plain[late..]);
        println!("{name}: {off:.5} from the plain path, {late:.5} late; what is seen no more moves {gone:.4}");
        assert!(off < 0.02 && late < 0.02, "{name}: {off} {late}");
        assert!(gone > 3.0 * off, "{name}: the test could not tell: {gone}");
        assert_eq!(held(&llm), 0);
    }
}

#[test]
fn ten_times_the_length_stays_within_the_planned_blocks() {
    let [llama, gemma] = wide_models();
    for ((name, model), dtype, answer) in [(llama.clone(), KvDtype::F16, 910), (gemma, KvDtype::Q4_0, 300)] {
        let file = tiny_file(&format!("long-{name}"), model.clone());
        let file = ModelFile::open(file.path()).unwrap();
        let mut llm = open(&file, &Settings { kv_types: KvTypes::all(dtype), ..settings() });
        let first = llm.admit(&prompt(50, 1), answer, Sampling::GREEDY).unwrap();
        // Its prompt alone is twice the planned length.
        let second = llm.admit(&prompt(200, 2), 200, Sampling::GREEDY).unwrap();
        let most = run(&mut llm);
        assert!(most <= 2 * 96 / 16, "{name}: {most} blocks, and the plan says 6 a sequence");
        let together = [end(&mut llm, first), end(&mut llm, second)];
        assert_eq!((together[0].len(), together[1].len()), (50 + answer, 400));
        assert!(llm.memory_report().pools[0].committed.count() <= 2 * 96 / 16, "{name}");
        assert_eq!(held(&llm), 0);
        // Alone, cut into other chunks, guessing ahead: the same tokens.
        let other = Settings { prefill_chunk: 16, draft: 3, max_seq_len: 128, ..llm.settings().clone() };
        let mut llm = open(&file, &other);
        for (prompt, tokens) in [(prompt(50, 1), &together[0]), (prompt(200, 2), &together[1])] {
            let row = llm.admit(&prompt, tokens.len() - prompt.len(), Sampling::GREEDY).unwrap();
            run(&mut llm);
            assert_eq!(&end(&mut llm, row), tokens, "{name}: a request is not disturbed by how it is cut");
        }
    }
}

#[test]
fn what_saw_all_before_it_is_shared_and_nothing_else() {
    let [(_, model), _] = wide_models();
    let file = tiny_file("shared", model);
    let file = ModelFile::open(file.path()).unwrap();
    let mut alone = open(&file, &settings());
    let mut llm = open(&file, &Settings { prefix_cache: true, ..settings() });
    let system = prompt(120, 9);
    for user in 1..4 {
        let prompt = [system.clone(), prompt(30, user)].concat();
        let row = alone.admit(&prompt, 200, Sampling::GREEDY).unwrap();
        run(&mut alone);
        let expected = end(&mut alone, row);
        let before = llm.reused_tokens();
        let row = llm.admit(&prompt, 200, Sampling::GREEDY).unwrap();
        // Of 120 tokens in common, those that saw all before them: sinks and window are 56, three blocks.
        assert_eq!(llm.reused_tokens() - before, if user == 1 { 0 } else { 48 });
        run(&mut llm);
        assert_eq!(end(&mut llm, row), expected);
        let stats = llm.prefix_stats().unwrap();
        assert_eq!(
            (stats.cached.count(), stats.reclaimable.count()),
            (3, 3),
            "released blocks are nobody's: {stats:?}"
        );
    }
}

#[test]
fn forks_run_on_and_give_everything_back() {
    for (name, model) in wide_models() {
        let file = tiny_file(&format!("forks-{name}"), model);
        let file = ModelFile::open(file.path()).unwrap();
        let mut llm = open(&file, &Settings { prefix_cache: true, max_batch: 3, ..settings() });
        let first = llm.admit(&prompt(70, 1), 300, Sampling::GREEDY).unwrap();
        // Forked before anything was released, and long after.
        (0..6).for_each(|_| _ = llm.step(|_| ()).unwrap());
        let second = llm.fork(first, Sampling::GREEDY).unwrap();
        (0..150).for_each(|_| _ = llm.step(|_| ()).unwrap());
        let third = llm.fork(first, Sampling::GREEDY).unwrap();
        assert!(run(&mut llm) <= 3 * 6);
        let [a, b, c] = [first, second, third].map(|row| end(&mut llm, row));
        assert_eq!((a.len(), &a), (370, &b), "{name}");
        assert_eq!(a, c, "{name}");
        assert_eq!(held(&llm), llm.prefix_stats().unwrap().reclaimable.count());
    }
}

#[test]
fn combinations_that_make_no_sense_are_refused() {
    let file = tiny_file("refused", TinyModel::llama(5));
    let file = ModelFile::open(file.path()).unwrap();
    let refused = |settings: Settings| match Llm::plan_only(&file, &settings) {
        Err(error @ EngineError::Setting { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let low = refused(Settings { kv_low: Some(KvDtype::Fp8Head), ..settings() });
    assert!(low.contains("leave out --kv-low and --gpu-layers"), "{low}");
    let wide = refused(Settings { streaming: Some(Streaming { sinks: 16, window: 60, most: 2000 }), ..settings() });
    assert_eq!(
        wide,
        "stream-window is 60: sinks, window and two blocks are 108 tokens and --max-seq-len holds 96: use a window of at most 48"
    );
    let mut llm = open(&file, &settings());
    assert!(matches!(
        llm.admit(&prompt(2001, 1), 1, Sampling::GREEDY),
        Err(EngineError::PromptTooLong { most: 2000, .. })
    ));
    // The table is planned: four bytes a block and row.
    let plan = |streaming| {
        let llm = open(&file, &Settings { streaming, ..settings() });
        llm.memory_plan().lines().iter().find(|line| line.name.contains("page table")).unwrap().granted.count()
    };
    let long = Some(Streaming { sinks: 16, window: 40, most: 1 << 20 });
    assert!(plan(long) - plan(None) >= 4 * 2 * ((1 << 20) - 96) / 16 - 4096, "{} {}", plan(long), plan(None));
}

/// Perplexity of tokens 1000 and later, of a text many times the context.
fn late_perplexity(llm: &mut Llm, ids: &[u32]) -> f64 {
    let (mut nll, mut count) = (0.0, 0);
    let see = &mut |position: usize, logits: &[f32]| {
        if let (Some(next), true) = (ids.get(position + 1), position >= 1000) {
            nll -= log_softmax(logits)[*next as usize];
            count += 1;
        }
    };
    llm.score(ids, see, None).unwrap();
    (nll / f64::from(count)).exp()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_runs_on_with_sinks_and_falls_apart_without() {
    let Some(path) = SMOLLM2.path() else { return };
    let file = ModelFile::open(path).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    let ids = tokenizer.encode_prompt(&fixture_text("prose.txt"));
    let streaming = |sinks, window| Settings {
        max_seq_len: 192,
        max_batch: 16,
        streaming: Some(Streaming { sinks, window, most: 1 << 15 }),
        ..settings()
    };
    let plain = Settings { max_seq_len: 2304, max_batch: 16, streaming: None, ..settings() };
    let whole = late_perplexity(&mut open(&file, &plain), &ids);
    let mut llm = open(&file, &streaming(16, 128));
    let sinks = late_perplexity(&mut llm, &ids);
    // As many tokens, without the first.
    let alone = late_perplexity(&mut open(&file, &streaming(0, 144)), &ids);
    println!(
        "smollm2, {} tokens in 192: perplexity {sinks:.2} with sinks, {alone:.2} without, {whole:.2} of the whole context",
        ids.len()
    );
    assert!(sinks < 1.6 * whole && alone > 1.4 * sinks, "{sinks} {alone} {whole}");
}
