//! The flags.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    str::FromStr,
};

use lexopt::prelude::*;
use memtier::{
    Bytes,
    plan::{KvDtype, Locks},
};
use memtier_engine::{
    EngineError, Sampling, Settings, Streaming,
    kv_types::{KvTypes, read_kv_type},
    policy::{read_costs, read_pressure_config},
};

/// What was asked for.
pub(crate) struct Args {
    pub(crate) command: Command,
    pub(crate) model: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) on: On,
    pub(crate) prompts: Vec<String>,
    /// Give the prompt to the model as it is, without its chat template.
    pub(crate) raw: bool,
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) json: Option<PathBuf>,
    /// Print the machine form instead of a report.
    pub(crate) json_to_stdout: bool,
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    /// A prompt of its last so many tokens is better than a refusal.
    pub(crate) cut_to: Option<usize>,
}

/// What serves the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
}

impl FromStr for On {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("cuda:") {
            Some(ordinal) => ordinal.parse().map(On::Cuda).map_err(drop),
            None if text == "cpu" => Ok(On::Cpu),
            None => Err(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Demo,
    Plan,
    Bench,
    Generate,
    MeasureAnchors,
}

pub(crate) const HELP: &str = "\
Serves a GGUF model from memory that was planned to the byte.

  memtier-engine demo     --model-file FILE [--prompt TEXT]...    answer, plan, memory report
  memtier-engine generate --model-file FILE --prompt TEXT...      the answers only
  memtier-engine plan     --model-file FILE                       the plan or its refusal, nothing is loaded
  memtier-engine bench    --model-file FILE --json                tokens per second, as JSON
  memtier-engine measure-anchors --model-file FILE                what prompts cost the host, for --cost-anchors

  --prompt TEXT         may be given several times: all are answered at once
  --raw                 no chat template
  --max-tokens N        length of the answer (128)
  --threads N           (all cores)
  --device cpu|cuda:N   what serves the model (cpu); a GPU needs a build with --features cuda, and compiled kernels
                        in the folder MEMTIER_KERNELS
  --budget SIZE         what plan and engine may take: 512MiB, 2GiB (2GiB)
  --gpu-layers N|auto   layers on the device, the first ones; the rest runs on the host (no device)
  --max-batch N         sequences at once (4)
  --max-seq-len N       tokens of a sequence, prompt and answer (2048)
  --prefill-chunk N     prompt tokens of one pass (512)
  --block-tokens N      tokens of a KV block (16)
  --lock NAME           a setting that a refusal must not suggest to change: max-batch, max-seq-len, prefill-chunk,
                        gpu-layers, budget
  --vram-budget SIZE    what may be used of the device; bounds --budget, or the layers of --gpu-layers
  --draft N             tokens that an answer guesses ahead, from what it has seen; no token differs (0)
  --no-prefix-cache     compute every prompt anew
  --batch-invariant     on a GPU: an answer's logits, and so its tokens, are the same to the bit whatever is served beside it
  --weights AS          on a GPU: file, in about the file's bits where there are kernels for them, or bf16 (file)
  --no-cublaslt         on a GPU: prompts are multiplied by this program's kernels, where cuBLASLt is installed too
  --window-snapshots N  copies of sliding windows for cached prompts (2)
  --cold-blocks N       blocks of a second tier for cached prompts that the pool has no room for (0)
  --cold-snapshots N    copies of sliding windows beside them (8)
  --spill-ahead N       blocks that go there after each pass while free ones are scarce; 0: when a request needs the room (8)
  --prefix-store DIR    load cached prompts from there at the start, and save them at the end
  --max-slots N         requests that run at once, the others wait (--max-batch)
  --queue N             requests that may wait (64)
  --graphs N            decode passes recorded at load and replayed, one for each number of requests (0: launched)
  --kv-type TYPE        what keys and values are stored as: f16, bf16, fp8, q8_0, nvfp4, q4_0; on a GPU f16, fp8, q8_0, nvfp4 (f16)
  --no-kv-rotation      q4_0 rounds rows as they are: less accurate
  --kv-type-layers L=T  other types for some layers: 0-1=f16,28-29=q8_0
  --kv-residual N       the latest N tokens are seen in f16, whatever --kv-type is (0)
  --stream-window N     lets a sequence run past --max-seq-len: its latest N tokens stay, and its first (off)
  --stream-sinks N      how many of its first tokens stay: whole blocks (one block)
  --stream-len N        tokens of such a sequence, prompt and answer (16 times --max-seq-len)
  --kv-low TYPE         fp8, q8_0 or q4_0: a pool of smaller keys and values for requests that start while memory is short
  --pressure-config FILE  thresholds, ladder and admission, one `key = value` a line
  --cost-anchors FILE   measured prompt costs, one `TOKENS PEAK` a line (the scratch formula)
  --cut-to N            under pressure serve a prompt's last N tokens rather than refuse it
  --reserve-file FILE   what the process takes beside its plan: measured at this start, planned at the next
  --temperature X       0 is greedy (0)
  --top-p X  --top-k N  candidates, the likeliest ones: that make up this share at this temperature (1); so many (0: 256, the most)
  --seed N              with a token's position it gives the token's random number: equal prompts and seeds give equal answers (0)
  --json FILE           also write the figures as JSON (bench: print them)
  --prefill N  --decode N  bench: tokens of the prompt (500), and of the answer (64)

  memtier-engine demo --model-file smollm2.gguf --prompt 'Why is the sky blue?' --max-tokens 64
";

fn parse<T: FromStr>(flag: &str, value: OsString, what: &str) -> Result<T, String> {
    let value = value.into_string().map_err(|value| format!("--{flag} {}: not text", value.display()))?;
    value.parse().map_err(|_| format!("--{flag} {value}: expected {what}"))
}

/// A number of something, with the largest that there can be.
fn count<T: FromStr>(flag: &str, value: OsString) -> Result<T, String> {
    let digits = value.to_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let most = [u64::MAX, u32::MAX.into()].into_iter().find(|most| most.to_string().parse::<T>().is_ok());
    match most.filter(|_| digits) {
        Some(most) => parse(flag, value, &format!("at most {most}")),
        None => parse(flag, value, "a whole number"),
    }
}

/// `512MiB`, `2GiB`, `1000000`.
fn size(flag: &str, value: OsString) -> Result<Bytes, String> {
    let text = value.into_string().map_err(|value| format!("--{flag} {}: not text", value.display()))?;
    let wrong = || format!("--{flag} {text}: expected a size such as 512MiB, 2GiB or a number of bytes");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        _ => return Err(wrong()),
    };
    Bytes::new(unit).times(number).map_err(|_| wrong())
}

fn kv_type(flag: &str, value: OsString) -> Result<KvDtype, String> {
    let text: String = parse(flag, value, "text")?;
    read_kv_type(&text).map_err(|_| format!("--{flag} {text}: expected f16, bf16, fp8, q8_0, nvfp4 or q4_0"))
}

/// What a file of the memory policy says.
fn file<T>(flag: &str, value: OsString, read: fn(&Path) -> Result<T, EngineError>) -> Result<T, String> {
    read(Path::new(&value)).map_err(|error| format!("--{flag} {error}"))
}

fn lock(locks: &mut Locks, value: OsString) -> Result<(), String> {
    let name: String = parse("lock", value, "the name of a setting")?;
    match name.as_str() {
        "max-batch" => locks.max_batch = true,
        "max-seq-len" => locks.max_seq_len = true,
        "prefill-chunk" => locks.prefill_chunk = true,
        "budget" => locks.budget = true,
        "gpu-layers" => locks.gpu_layers = true,
        _ => {
            let known = "max-batch, max-seq-len, prefill-chunk, gpu-layers or budget";
            return Err(format!("--lock {name}: expected {known}"));
        }
    }
    Ok(())
}

const FLAGS: &[&str] = &[
    "model-file",
    "prompt",
    "raw",
    "max-tokens",
    "threads",
    "device",
    "budget",
    "gpu-layers",
    "reserve-file",
    "max-batch",
    "max-seq-len",
    "prefill-chunk",
    "block-tokens",
    "lock",
    "temperature",
    "top-p",
    "top-k",
    "seed",
    "json",
    "prefill",
    "decode",
    "vram-budget",
    "max-slots",
    "draft",
    "window-snapshots",
    "cold-blocks",
    "cold-snapshots",
    "spill-ahead",
    "prefix-store",
    "no-prefix-cache",
    "no-kv-rotation",
    "batch-invariant",
    "weights",
    "no-cublaslt",
    "queue",
    "graphs",
    "kv-low",
    "kv-type",
    "kv-type-layers",
    "kv-residual",
    "stream-window",
    "stream-sinks",
    "stream-len",
    "pressure-config",
    "cost-anchors",
    "cut-to",
    "help",
];

/// The flag that was probably meant: the one with the most letters in common at its beginning.
fn nearest(name: &str) -> Option<&'static str> {
    let common = |flag: &str| flag.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    FLAGS.iter().copied().max_by_key(|flag| common(flag)).filter(|flag| common(flag) >= 2)
}

/// What to write instead of a flag that there is not.
fn hint(name: &str) -> String {
    if let Some(off) = FLAGS.iter().find(|flag| flag.strip_prefix("no-") == Some(name)) {
        return format!(": it is the default, which --{off} turns off");
    }
    nearest(name).map_or(String::new(), |near| format!(", did you mean --{near}?"))
}

/// Reads the command line. `Ok(None)`: help was asked for.
///
/// # Errors
/// One line: the flag, its value, what was expected.
pub(crate) fn read(args: impl Iterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut parser = lexopt::Parser::from_iter(args);
    let mut command = None;
    let mut read = Args {
        command: Command::Demo,
        model: PathBuf::new(),
        settings: Settings::default(),
        on: On::Cpu,
        prompts: Vec::new(),
        raw: false,
        max_tokens: 128,
        sampling: Sampling::GREEDY,
        json: None,
        json_to_stdout: false,
        prefill: 500,
        decode: 64,
        cut_to: None,
    };
    let mut stream: (Option<usize>, Option<usize>, Option<usize>) = (None, None, None);
    let one_line = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(one_line)? {
        let flag = match &argument {
            Short('h') => "help",
            Long(name) => name,
            Value(value) if command.is_none() => {
                command = Some(match value.to_str() {
                    Some("demo") => Command::Demo,
                    Some("plan") => Command::Plan,
                    Some("bench") => Command::Bench,
                    Some("generate") => Command::Generate,
                    Some("measure-anchors") => Command::MeasureAnchors,
                    _ => {
                        return Err(format!(
                            "{}: expected demo, generate, plan, bench or measure-anchors",
                            value.display()
                        ));
                    }
                });
                continue;
            }
            other => return Err(format!("{}: not understood, see --help", lexopt_name(other))),
        };
        let flag = flag.to_owned();
        if flag == "help" {
            return Ok(None);
        }
        if flag == "no-prefix-cache" {
            read.settings.prefix_cache = false;
            continue;
        }
        if flag == "no-kv-rotation" {
            read.settings.kv_rotation = false;
            continue;
        }
        if flag == "batch-invariant" {
            read.settings.batch_invariant = true;
            continue;
        }
        if flag == "no-cublaslt" {
            read.settings.cublaslt = false;
            continue;
        }
        if flag == "raw" {
            read.raw = true;
            continue;
        }
        if !FLAGS.contains(&flag.as_str()) {
            return Err(format!("--{flag}: no such flag{}", hint(&flag)));
        }
        if flag == "json" && command == Some(Command::Bench) {
            read.json_to_stdout = true;
            continue;
        }
        let value = parser.value().map_err(|_| format!("--{flag}: needs a value"))?;
        match flag.as_str() {
            "model-file" => read.model = value.into(),
            "prompt" => read.prompts.push(parse(&flag, value, "text")?),
            "max-tokens" => read.max_tokens = count(&flag, value)?,
            "device" => read.on = parse(&flag, value, "cpu, or cuda: and the number of a GPU")?,
            "threads" => read.settings.threads = count(&flag, value)?,
            "budget" => read.settings.budget = size(&flag, value)?,
            "reserve-file" => read.settings.reserve_file = Some(value.into()),
            "gpu-layers" => {
                read.settings.gpu_layers = Some(parse(&flag, value, "a number of layers, or auto")?);
            }
            "max-batch" => read.settings.max_batch = count(&flag, value)?,
            "max-seq-len" => read.settings.max_seq_len = count(&flag, value)?,
            "prefill-chunk" => read.settings.prefill_chunk = count(&flag, value)?,
            "block-tokens" => read.settings.block_tokens = count(&flag, value)?,
            "lock" => lock(&mut read.settings.locks, value)?,
            "temperature" => read.sampling.temperature = parse(&flag, value, "a number")?,
            "top-p" => read.sampling.top_p = parse(&flag, value, "a number")?,
            "top-k" => {
                let all = |error| format!("{error}; 0 looks at as many candidates as it ever does, 256");
                read.sampling.top_k = count(&flag, value).map_err(all)?;
            }
            "seed" => read.sampling.seed = count(&flag, value)?,
            "json" => read.json = Some(value.into()),
            "prefill" => read.prefill = count(&flag, value)?,
            "decode" => read.decode = count(&flag, value)?,
            "vram-budget" => read.settings.vram_budget = Some(size(&flag, value)?),
            "draft" => read.settings.draft = count(&flag, value)?,
            "window-snapshots" => read.settings.window_snapshots = count(&flag, value)?,
            "cold-blocks" => read.settings.cold_blocks = count(&flag, value)?,
            "cold-snapshots" => read.settings.cold_snapshots = count(&flag, value)?,
            "spill-ahead" => read.settings.spill_ahead = count(&flag, value)?,
            "prefix-store" => read.settings.prefix_store = Some(value.into()),
            "max-slots" => read.settings.max_slots = Some(count(&flag, value)?),
            "queue" => read.settings.queue = count(&flag, value)?,
            "kv-low" => read.settings.kv_low = Some(kv_type(&flag, value)?),
            "weights" => read.settings.gpu_weights = Some(parse(&flag, value, "file or bf16")?),
            "kv-type" => read.settings.kv_types.rest = kv_type(&flag, value)?,
            "kv-type-layers" => {
                let all = value.to_string_lossy().contains("rest");
                let types: KvTypes = parse(&flag, value, "layers and their types, 0-1=f16,28-29=q8_0 for example")?;
                let rest = if all { types.rest } else { read.settings.kv_types.rest };
                read.settings.kv_types = KvTypes { rest, ..types };
            }
            "kv-residual" => read.settings.kv_residual = count(&flag, value)?,
            "stream-window" => stream.0 = Some(count(&flag, value)?),
            "stream-sinks" => stream.1 = Some(count(&flag, value)?),
            "stream-len" => stream.2 = Some(count(&flag, value)?),
            "graphs" => read.settings.graphs = count(&flag, value)?,
            "pressure-config" => read.settings.pressure = file(&flag, value, read_pressure_config)?,
            "cost-anchors" => read.settings.costs = Some(file(&flag, value, read_costs)?),
            "cut-to" => read.cut_to = Some(count(&flag, value)?),
            _ => return Err(format!("--{flag}: not understood, see --help")),
        }
    }
    read.settings.streaming = match stream {
        (Some(window), sinks, most) => Some(Streaming {
            sinks: sinks.unwrap_or(read.settings.block_tokens),
            window,
            most: most.unwrap_or_else(|| read.settings.max_seq_len.saturating_mul(16)),
        }),
        (None, None, None) => None,
        _ => return Err("--stream-sinks and --stream-len: they go with --stream-window N".into()),
    };
    read.command = command.ok_or("no command: demo, generate, plan, bench or measure-anchors, see --help")?;
    if read.model.as_os_str().is_empty() {
        return Err("--model-file is missing: the path of a GGUF file".into());
    }
    if read.max_tokens == 0 {
        return Err("--max-tokens 0: ask for at least one token".into());
    }
    if read.cut_to == Some(0) {
        return Err("--cut-to 0: keep at least one token of a prompt".into());
    }
    if read.prefill == 0 || read.decode == 0 {
        return Err("--prefill and --decode: at least one token each".into());
    }
    Ok(Some(read))
}

fn lexopt_name(argument: &lexopt::Arg<'_>) -> String {
    match argument {
        Short(letter) => format!("-{letter}"),
        Long(name) => format!("--{name}"),
        Value(value) => value.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(words: &[&str]) -> Result<Option<Args>, String> {
        read(std::iter::once("memtier-engine").chain(words.iter().copied()).map(OsString::from))
    }

    #[test]
    fn every_bad_flag_is_one_line_with_its_value() {
        let bad = [
            (&["demo", "--model-file", "m", "--threads", "many"][..], "--threads many"),
            (&["demo", "--model-file", "m", "--budget", "2 parsecs"], "--budget 2 parsecs"),
            (&["demo", "--model-file", "m", "--budget", "99999999999999GiB"], "--budget 99999999999999GiB"),
            (&["demo", "--model-file", "m", "--max-tokens", "0"], "--max-tokens 0"),
            (&["demo", "--model-file", "m", "--max-tokens", "-1"], "--max-tokens -1: expected a whole number"),
            (
                &["demo", "--model-file", "m", "--top-k", "99999999999"],
                "99999999999: expected at most 4294967295; 0 looks",
            ),
            (&["demo", "--model-file", "m", "--seed", "99999999999999999999"], "expected at most 18446744073709551615"),
            (&["demo", "--model-file", "m", "--max-tokns", "1"], "did you mean --max-tokens"),
            (&["demo", "--model-file", "m", "--cublaslt"], "it is the default, which --no-cublaslt turns off"),
            (&["demo", "--model-file", "m", "--lock", "wings"], "--lock wings"),
            (&["demo", "--model-file", "m", "--vram-budget", "big"], "--vram-budget big"),
            (&["demo", "--model-file", "m", "--max-slots", "-1"], "--max-slots"),
            (
                &["demo", "--model-file", "m", "--pressure-config", "/nowhere"],
                "--pressure-config /nowhere: cannot read",
            ),
            (&["demo", "--model-file", "m", "--cost-anchors", "/nowhere"], "--cost-anchors /nowhere: cannot read"),
            (&["demo", "--model-file", "m", "--device", "cuda"], "--device cuda: expected cpu, or cuda:"),
            (&["demo", "--model-file", "m", "--stream-sinks", "16"], "--stream-window N"),
            (&["demo", "--model-file", "m", "--kv-type", "q3_0"], "--kv-type q3_0: expected f16"),
            (&["demo", "--model-file", "m", "--kv-type-layers", "q4_0"], "--kv-type-layers q4_0: expected layers"),
            (&["demo", "--model-file", "m", "--gpu-layers", "most"], "--gpu-layers most"),
            (&["demo", "--model-file", "m", "--gpu-layers", "-3"], "--gpu-layers"),
            (&["demo"], "--model-file"),
            (&["dance"], "dance"),
            (&[], "no command"),
        ];
        for (words, says) in bad {
            let error = read_all(words).err().unwrap_or_else(|| panic!("{words:?} was accepted"));
            assert!(error.contains(says) && !error.contains('\n'), "{words:?}: {error}");
        }
    }

    #[test]
    fn help_names_every_flag() {
        for flag in FLAGS.iter().filter(|flag| **flag != "help") {
            let named = |word: &str| word.strip_prefix("--") == Some(flag);
            assert!(HELP.split([' ', '\n', '[', ']']).any(named), "--{flag} is not in the help");
        }
    }

    #[test]
    fn streaming_has_defaults() {
        let words = ["plan", "--model-file", "m", "--stream-window", "512", "--max-seq-len", "1024"];
        let args = read_all(&words).unwrap().unwrap();
        assert_eq!(args.settings.streaming, Some(Streaming { sinks: 16, window: 512, most: 16_384 }));
    }

    #[test]
    fn sizes_have_units() {
        let args = read_all(&["plan", "--model-file", "m", "--budget", "512MiB"]).unwrap().unwrap();
        assert_eq!(args.settings.budget, Bytes::mib(512));
    }
}
