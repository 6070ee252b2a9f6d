//! The reference engine beside llama.cpp on the same file, threads and token counts.
//!
//! The two take turns, so that a noisy neighbour or a warm CPU hits both, and the ratio is of medians.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use tinyjson::JsonValue;

use super::table::{Measured, Row};
use super::{Settings, json};
use crate::failure::Failure;
use crate::fetch::catalog;
use crate::{build, fetch, oracle, paths, process, progress};

/// Tokens of the prompt whose prefill is timed.
const PREFILL_TOKENS: u32 = 500;
/// Tokens whose decoding is timed.
const DECODE_TOKENS: u32 = 128;

/// Measures one model of the catalogue.
///
/// # Errors
/// The engine does not build, the oracle cannot be set up, or one of them fails or reports no speed.
pub(super) fn measure(model: &str, settings: Settings) -> Result<Vec<Row>, Failure> {
    let model = catalog::find(model).ok_or_else(|| Failure::usage(fetch::unknown(model)))?;
    let file = fetch::ensure(model, &paths::cache()?)?;
    let python = oracle::python()?;
    let engine = build::binary("memtier-engine", "memtier-engine")?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for round in 1..=settings.repeats {
        progress::status(&format!("{}: round {round} of {}, memtier", model.name, settings.repeats));
        ours.take("memtier-engine", &process::output(&mut ours_command(&engine, &file, settings))?)?;
        progress::status(&format!("{}: round {round} of {}, llama.cpp", model.name, settings.repeats));
        theirs.take("the oracle", &process::output(&mut theirs_command(&python, &file, settings))?)?;
    }
    progress::clear_status();
    let row = |what: String, ours: Vec<f64>, theirs: Vec<f64>| Row {
        what,
        unit: "tok/s".to_owned(),
        larger_is_better: true,
        ours: Measured::of(ours),
        peer: Measured::of(theirs).map(|theirs| ("llama.cpp".to_owned(), theirs)),
    };
    let threads = settings.threads;
    Ok(vec![
        row(format!("prefill {PREFILL_TOKENS} tokens, {threads} threads"), ours.prefill, theirs.prefill),
        row(format!("decode {DECODE_TOKENS} tokens, {threads} threads"), ours.decode, theirs.decode),
    ])
}

fn ours_command(engine: &Path, file: &Path, settings: Settings) -> Command {
    let mut command = Command::new(engine);
    command.args(["bench", "--json", "--model-file"]).arg(file);
    common(&mut command, settings);
    command
}

fn theirs_command(python: &Path, file: &Path, settings: Settings) -> Command {
    let mut command = Command::new(python);
    command.arg(paths::root().join("xtask/python/llama_speed.py")).arg("--model-file").arg(file);
    common(&mut command, settings);
    command
}

/// Both sides take the same flags.
fn common(command: &mut Command, settings: Settings) {
    let numbers =
        [("--threads", settings.threads), ("--prefill", PREFILL_TOKENS.into()), ("--decode", DECODE_TOKENS.into())];
    for (flag, number) in numbers {
        command.arg(flag).arg(number.to_string());
    }
}

/// Tokens per second, one a round.
#[derive(Default)]
struct Samples {
    prefill: Vec<f64>,
    decode: Vec<f64>,
}

impl Samples {
    /// Reads the JSON object at the end of a run's output.
    fn take(&mut self, who: &str, output: &str) -> Result<(), Failure> {
        let object = json::last_object(output)
            .ok_or_else(|| Failure::new(format!("{who} printed no JSON object; run it by hand to see why")))?;
        self.prefill.push(speed(who, &object, "prefill_tok_s")?);
        self.decode.push(speed(who, &object, "decode_tok_s")?);
        Ok(())
    }
}

fn speed(who: &str, object: &HashMap<String, JsonValue>, key: &str) -> Result<f64, Failure> {
    let number = object.get(key).and_then(|value| value.get::<f64>()).copied();
    number
        .filter(|speed| speed.is_finite() && *speed > 0.0)
        .ok_or_else(|| Failure::new(format!("{who} reported no positive number as {key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_from_the_last_object_and_nonsense_is_refused() {
        let mut samples = Samples::default();
        samples.take("x", "loading\n{\"prefill_tok_s\": 250.5, \"decode_tok_s\": 80}\n").unwrap();
        assert_eq!((samples.prefill, samples.decode), (vec![250.5], vec![80.0]));
        for bad in ["", "{\"prefill_tok_s\": 1}", "{\"prefill_tok_s\": 0, \"decode_tok_s\": 80}"] {
            assert!(Samples::default().take("x", bad).is_err(), "{bad}");
        }
    }
}
