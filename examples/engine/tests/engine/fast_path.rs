//! The fast path: held to the plain f32 path layer by layer, to the oracle token by token, and to itself whatever the batch.
//! Run optimised: `cargo test --release -p memtier-engine --test engine fast_path::`.

use crate::common::{GEMMA3, RealModel, SMOLLM2, fixture_text, relative};
use crate::reference::{Activations, KvPrecision, LogitsOf, Reference, log_softmax};
use memtier::Bytes;
use memtier_engine::{Llm, ModelFile, Sampling, Settings, tokenizer::Tokenizer};
use serde::Deserialize;
use std::f64::consts::SQRT_2;

/// Everything is computed, and no block stays: nothing is kept for later prompts.
fn settings() -> Settings {
    let prefix_cache = false;
    Settings { budget: Bytes::gib(2), max_batch: 8, max_seq_len: 2304, threads: 2, prefix_cache, ..Settings::default() }
}

fn open(model: RealModel, settings: &Settings) -> Option<(Llm, Tokenizer)> {
    let file = ModelFile::open(model.path()?).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata()).unwrap();
    Some((Llm::open(&file, settings, &mut |_| ()).unwrap(), tokenizer))
}

/// Answers all prompts at once, `answer` tokens each.
fn generate(llm: &mut Llm, prompts: &[&[u32]], answer: usize) -> Vec<Vec<u32>> {
    let rows: Vec<_> = prompts.iter().map(|prompt| llm.admit(prompt, answer, Sampling::GREEDY).unwrap()).collect();
    let mut answers = vec![Vec::new(); llm.settings().max_batch];
    while llm.step(|token| answers[token.row].push(token.token)).unwrap() > 0 {}
    rows.iter().for_each(|row| llm.end(*row).unwrap());
    rows.into_iter().map(|row| std::mem::take(&mut answers[row])).collect()
}

#[derive(Deserialize)]
struct Greedy {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    tokens: Vec<u32>,
    /// For each step the likeliest tokens with their log-probabilities.
    top: Vec<Vec<(u32, f64)>>,
}

/// Every layer's output, and the logits of every position, beside the plain path's: with activations rounded as the kernels round
/// them the two agree closely. How far rounding alone moves a logit is measured on the plain path, with and without it; two that round
/// independently are the root of two times as far apart, and the fast path no further.
fn layers_agree(model: RealModel) {
    let Some((mut llm, _)) = open(model, &settings()) else { return };
    let Some(path) = model.path() else { return };
    let prompts = model.fixture::<Greedy>("greedy").prompts;
    // One that crosses several blocks; the longest crosses Gemma's window and is left to the tokens.
    let ids: Vec<u32> = prompts.iter().map(|prompt| &prompt.ids).find(|ids| ids.len() > 40).unwrap()[..40].to_vec();
    let mut fast: Vec<Vec<f32>> = vec![Vec::new(); llm.arch().layers.len()];
    let mut logits = Vec::new();
    let mut probe = |layer: usize, x: &[f32]| fast[layer].extend_from_slice(x);
    llm.score(&ids, &mut |_, row| logits.extend_from_slice(row), Some(&mut probe)).unwrap();
    let plain = [Activations::Rounded, Activations::F32].map(|activations| {
        Reference::open_with(&path, activations).session(KvPrecision::F16).extend(&ids, LogitsOf::From(0))
    });
    let rows = plain.each_ref().map(|output| output.logits.concat());
    let rounding = relative(&rows[0], &rows[1]);
    for (output, rows) in plain.iter().zip(&rows) {
        let distances: Vec<f64> =
            fast.iter().zip(&output.hidden[1..]).map(|(fast, plain)| relative(fast, plain)).collect();
        let distance = relative(&logits, rows);
        println!("{}: layers {distances:.4?}, logits {distance:.4} (rounding {rounding:.4})", model.name);
        assert_eq!(distances.len(), output.hidden.len() - 1);
        assert!(distances.iter().all(|distance| *distance < 0.05), "a layer's output is off");
        assert!(distance < SQRT_2 * rounding, "logits are off by {distance:.4}, rounding moves them by {rounding:.4}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_layers_agree_with_the_plain_path() {
    layers_agree(SMOLLM2);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_layers_agree_with_the_plain_path() {
    layers_agree(GEMMA3);
}

/// What the rounding of activations moves a logit by, as a root mean square over the vocabulary: measured between llama.cpp,
/// which rounds, and the plain f32 path (`tests/engine/noise.rs`). Two engines that round alike and sum in another order are as far
/// apart.
const NOISE: f64 = 0.12;

/// Asked about each step of the oracle's own continuation, so that one different token does not hide what follows. Another
/// token is excused where the oracle itself saw it as likely as its own, but for a difference that the noise of two logits
/// explains, three times over.
fn greedy_tokens_are_the_oracles(model: RealModel) {
    let Some((mut llm, _)) = open(model, &settings()) else { return };
    let allowed = 3.0 * NOISE * SQRT_2;
    let (mut steps, mut excused, mut same_run, mut wrong) = (0, 0, 0, Vec::new());
    let prompts = model.fixture::<Greedy>("greedy").prompts;
    for (index, prompt) in prompts.iter().enumerate() {
        let mut ids = prompt.ids.clone();
        ids.extend(&prompt.tokens[..prompt.tokens.len() - 1]);
        let mut differs = false;
        let see = &mut |position: usize, logits: &[f32]| {
            let Some(step) = (position + 1).checked_sub(prompt.ids.len()) else { return };
            steps += 1;
            let (first, first_logprob) = (prompt.tokens[step], prompt.top[step][0].1);
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
            if best == first {
                return;
            }
            differs = true;
            let theirs = prompt.top[step].iter().find(|(token, _)| *token == best).map(|(_, logprob)| *logprob);
            let ours = log_softmax(logits);
            let line = format!(
                "prompt {index} step {step}: {best} for {first}; the oracle's {first_logprob:.3} for {first}, {theirs:.3?} for \
                 {best}; ours {:.3}, {:.3}",
                ours[first as usize], ours[best as usize]
            );
            println!("{}: {line}", model.name);
            // The oracle's list is short. Where even its last entry is that near, a token behind it is excused by our own sight.
            let last = prompt.top[step].last().map_or(f64::MIN, |(_, logprob)| *logprob);
            let behind = ours[best as usize] - ours[first as usize] <= allowed;
            match first_logprob - theirs.unwrap_or(last) <= allowed && (theirs.is_some() || behind) {
                true => excused += 1,
                false => wrong.push(line),
            }
        };
        llm.score(&ids, see, None).unwrap();
        // Free-running, the answer is the oracle's up to the first such step, and to the end where there is none.
        let ours = generate(&mut llm, &[&prompt.ids], prompt.tokens.len()).remove(0);
        let same = ours.iter().zip(&prompt.tokens).take_while(|(a, b)| a == b).count();
        same_run += usize::from(same == prompt.tokens.len());
        assert!(differs || same == prompt.tokens.len(), "prompt {index}: decoding differs from prefill at step {same}");
    }
    println!(
        "{}: {steps} steps, {excused} excused within {allowed:.2}, {} wrong; {same_run} of {} answers equal to the last token",
        model.name,
        wrong.len(),
        prompts.len()
    );
    assert!(prompts.len() >= 10 && steps >= 600);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_greedy_tokens_are_the_oracles() {
    greedy_tokens_are_the_oracles(SMOLLM2);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_greedy_tokens_are_the_oracles() {
    greedy_tokens_are_the_oracles(GEMMA3);
}

#[derive(Deserialize)]
struct Perplexity {
    text: String,
    tokens: usize,
    perplexity: f64,
}

/// Teacher-forced over the text in one context: every token but the first, given all before it.
fn perplexity_is_the_oracles(model: RealModel) {
    let Some((mut llm, tokenizer)) = open(model, &settings()) else { return };
    let fixture: Perplexity = model.fixture("perplexity");
    let ids = tokenizer.encode_prompt(&fixture_text(&fixture.text));
    let (mut nll, mut count) = (0.0, 0);
    let see = &mut |position: usize, logits: &[f32]| {
        if let Some(next) = ids.get(position + 1) {
            nll -= log_softmax(logits)[*next as usize];
            count += 1;
        }
    };
    llm.score(&ids, see, None).unwrap();
    assert_eq!(count + 1, fixture.tokens);
    let ours = (nll / count as f64).exp();
    let off = ours / fixture.perplexity - 1.0;
    println!(
        "{}: perplexity {ours:.4} over {count} tokens, the oracle's {:.4}: {:+.3} %",
        model.name,
        fixture.perplexity,
        off * 100.0
    );
    assert!(off.abs() < 0.005);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_perplexity_is_the_oracles() {
    perplexity_is_the_oracles(SMOLLM2);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_perplexity_is_the_oracles() {
    perplexity_is_the_oracles(GEMMA3);
}

/// Eight sequences at once give the tokens that each gives alone, whatever the chunks and the threads.
fn batched_equals_alone(model: RealModel) {
    let Some((mut llm, _)) = open(model, &settings()) else { return };
    let prompts = model.fixture::<Greedy>("greedy").prompts;
    let prompts: Vec<&[u32]> = prompts.iter().take(8).map(|prompt| &*prompt.ids).collect();
    let together = generate(&mut llm, &prompts, 32);
    let small = Settings { prefill_chunk: 33, max_batch: 2, threads: 1, ..settings() };
    let Some((mut alone, _)) = open(model, &small) else { return };
    for (index, prompt) in prompts.iter().enumerate() {
        assert_eq!(generate(&mut alone, &[prompt], 32).remove(0), together[index], "prompt {index}");
    }
    assert!(llm.memory_report().pools.iter().all(|pool| pool.held.is_zero()));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn smollm2_batched_equals_alone() {
    batched_equals_alone(SMOLLM2);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation: run with --release")]
fn gemma_3_batched_equals_alone() {
    batched_equals_alone(GEMMA3);
}
