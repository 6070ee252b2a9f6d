//! Measures how far llama.cpp's logits are from the plain f32 path's, and how much of that is the rounding of
//! activations. A measurement, not a check: it needs the file that `xtask/oracle/oracle.py noise NAME -o FILE` writes.
//!
//! ```text
//! MEMTIER_NOISE=smollm2:FILE cargo test --release -p memtier-engine --test engine noise:: -- --ignored --nocapture
//! ```

use crate::common::{GEMMA3, SMOLLM2};
use crate::reference::{Activations, KvPrecision, LogitsOf, Reference, log_softmax};
use serde::Deserialize;

#[derive(Deserialize)]
struct Greedy {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    tokens: Vec<u32>,
}

/// The oracle's log-probabilities of the whole vocabulary at one step.
struct Record {
    prompt: usize,
    step: usize,
    logprobs: Vec<f32>,
}

fn records(path: &str, vocab: usize) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let word = |record: &[u8], at: usize| [0, 1, 2, 3].map(|byte| record[4 * at + byte]);
    bytes
        .chunks(4 * (2 + vocab))
        .map(|record| Record {
            prompt: u32::from_le_bytes(word(record, 0)) as usize,
            step: u32::from_le_bytes(word(record, 1)) as usize,
            logprobs: (2..2 + vocab).map(|at| f32::from_le_bytes(word(record, at))).collect(),
        })
        .collect()
}

/// Root mean square and maximum of differences of logits, without the constant that a softmax does not see.
fn distance(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mean = a.iter().zip(b).map(|(a, b)| a - b).sum::<f64>() / a.len() as f64;
    let differences = a.iter().zip(b).map(|(a, b)| a - b - mean);
    let square: f64 = differences.clone().map(|d| d * d).sum();
    ((square / a.len() as f64).sqrt(), differences.fold(0.0, |max, d| max.max(d.abs())))
}

#[derive(Default)]
struct Stats(Vec<(f64, f64)>);

impl Stats {
    fn text(&self) -> String {
        let count = self.0.len() as f64;
        let rms = (self.0.iter().map(|(rms, _)| rms * rms).sum::<f64>() / count).sqrt();
        let max = self.0.iter().map(|(_, max)| *max).fold(0.0, f64::max);
        format!("{rms:.4} rms, {max:.4} at most")
    }
}

#[test]
#[ignore = "a measurement: needs a file of the oracle, named in MEMTIER_NOISE"]
fn distance_of_the_oracle_to_the_reference() {
    let Ok(setting) = std::env::var("MEMTIER_NOISE") else { panic!("MEMTIER_NOISE=NAME:FILE") };
    let (name, file) = setting.split_once(':').expect("NAME:FILE");
    let model = [SMOLLM2, GEMMA3].into_iter().find(|model| model.name == name).expect("smollm2 or gemma3");
    let Some(path) = model.path() else { return };
    let prompts = model.fixture::<Greedy>("greedy").prompts;

    let mut plain: Vec<Vec<f64>> = Vec::new();
    for (activations, precision) in [
        (Activations::F32, KvPrecision::F32),
        (Activations::F32, KvPrecision::F16),
        (Activations::Rounded, KvPrecision::F16),
    ] {
        let reference = Reference::open_with(&path, activations);
        let records = records(file, reference.description.vocab_size as usize);
        let (mut all, mut likely, mut to_plain) = (Stats::default(), Stats::default(), Stats::default());
        for (index, prompt) in prompts.iter().enumerate() {
            let steps: Vec<&Record> = records.iter().filter(|record| record.prompt == index).collect();
            let Some(last) = steps.iter().map(|record| record.step).max() else { continue };
            let mut ids = prompt.ids.clone();
            ids.extend(&prompt.tokens[..last]);
            let output = reference.session(precision).extend(&ids, LogitsOf::From(prompt.ids.len() - 1));
            for record in steps {
                let ours = log_softmax(&output.logits[record.step]);
                let theirs: Vec<f64> = record.logprobs.iter().map(|&x| f64::from(x)).collect();
                all.0.push(distance(&ours, &theirs));
                if (activations, precision) == (Activations::F32, KvPrecision::F32) {
                    plain.push(ours.clone());
                }
                to_plain.0.push(distance(&ours, &plain[to_plain.0.len()]));
                let mut order: Vec<usize> = (0..theirs.len()).collect();
                order.sort_by(|&a, &b| theirs[b].total_cmp(&theirs[a]));
                let pick = |values: &[f64]| order[..100].iter().map(|&id| values[id]).collect::<Vec<_>>();
                likely.0.push(distance(&pick(&ours), &pick(&theirs)));
            }
        }
        println!(
            "{name}, activations {activations:?}, cache {precision:?}, {} steps: to the oracle {} (of its 100 likeliest {}); \
             to the plain path {}",
            all.0.len(),
            all.text(),
            likely.text(),
            to_plain.text()
        );
    }
}
