//! Flags.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;
use memtier::plan::{KvDtype, Locks};
use memtier::{Bytes, Layers, Tokens};
use memtier_model::demands::SplitKind;

use crate::device::Platform;
use crate::suggest::did_you_mean;
use crate::units::{count, size, size_in_mib};

/// What `--gpu-layers` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    /// So many.
    Count(Layers),
    /// As many as fit.
    Auto,
}

/// What `--fit` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The most sequences.
    Batch,
    /// The longest sequences.
    Context,
    /// The most precise cache.
    Kv,
}

/// Whose cache is accounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// The planner's own.
    #[default]
    Memtier,
    /// What llama.cpp would print.
    LlamaCpp,
    /// What vLLM would print.
    Vllm,
}

/// What is written where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Text on standard output.
    #[default]
    Text,
    /// JSON on standard output.
    Json,
    /// A page with the picture, into a file.
    Html(PathBuf),
    /// The picture, into a file.
    Svg(PathBuf),
}

/// When text has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// On terminals, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The settings of a plan, as typed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model, or both of `compare`.
    pub models: Vec<PathBuf>,
    /// `--mmproj`
    pub mmproj: Option<PathBuf>,
    /// `--lora`
    pub loras: Vec<PathBuf>,
    /// `--vram-budget`, one a device.
    pub budgets: Vec<Bytes>,
    /// `--host-budget`
    pub host_budget: Option<Bytes>,
    /// `--device`
    pub devices: Vec<String>,
    /// `--platform`
    pub platform: Platform,
    /// `--split`
    pub split: SplitKind,
    /// `--max-batch`
    pub max_batch: Option<u64>,
    /// `--max-seq-len`
    pub max_seq_len: Option<Tokens>,
    /// `--kv-dtype`, keys first.
    pub kv_dtype: Option<(KvDtype, Option<KvDtype>)>,
    /// `--block-size`
    pub block_size: Option<Tokens>,
    /// `--prefill-chunk`
    pub prefill_chunk: Option<Tokens>,
    /// `--speculative-depth`
    pub speculative_depth: u64,
    /// `--context-reserve`
    pub context_reserve: Option<Bytes>,
    /// `--library-reserve`
    pub library_reserve: Option<Bytes>,
    /// `--held`
    pub held: Bytes,
    /// `--host-cache`
    pub host_cache: Bytes,
    /// `--gpu-layers`
    pub gpu_layers: Option<GpuLayers>,
    /// `--no-vision`
    pub no_vision: bool,
    /// `--lock`
    pub locks: Locks,
    /// `--fit`
    pub fit: Option<Fit>,
    /// `--accounting`
    pub accounting: Accounting,
    /// `--unified`
    pub unified: bool,
    /// `--swa-full`
    pub swa_full: bool,
    /// `--cell-padding`
    pub cell_padding: Option<Tokens>,
    /// `--weights`
    pub list_weights: bool,
    /// `--layers`
    pub list_layers: bool,
    /// Where the result goes.
    pub output: Output,
    /// `--color`
    pub colour: Colour,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            models: Vec::new(),
            mmproj: None,
            loras: Vec::new(),
            budgets: Vec::new(),
            host_budget: None,
            devices: Vec::new(),
            platform: if cfg!(windows) { Platform::Windows } else { Platform::Linux },
            split: SplitKind::Layer,
            max_batch: None,
            max_seq_len: None,
            kv_dtype: None,
            block_size: None,
            prefill_chunk: None,
            speculative_depth: 0,
            context_reserve: None,
            library_reserve: None,
            held: Bytes::ZERO,
            host_cache: Bytes::ZERO,
            gpu_layers: None,
            no_vision: false,
            locks: Locks::default(),
            fit: None,
            accounting: Accounting::default(),
            unified: false,
            swa_full: false,
            cell_padding: None,
            list_weights: false,
            list_layers: false,
            output: Output::default(),
            colour: Colour::default(),
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// `--help`, of a command when one was named.
    Help(Option<String>),
    /// `--version`
    Version,
    /// `plan`
    Plan(Box<Options>),
    /// `compare`
    Compare(Box<Options>),
    /// `devices`
    Devices,
    /// `schema`
    Schema,
    /// `completions SHELL`
    Completions(String),
}

/// The commands.
pub const COMMANDS: [&str; 5] = ["plan", "compare", "devices", "schema", "completions"];

/// The flags of `plan` and `compare`, with whether they take a value.
pub const FLAGS: [(&str, bool); 33] = [
    ("accounting", true),
    ("block-size", true),
    ("cell-padding", true),
    ("color", true),
    ("context-reserve", true),
    ("device", true),
    ("fit", true),
    ("gpu-layers", true),
    ("held", true),
    ("help", false),
    ("host-budget", true),
    ("host-cache", true),
    ("html", true),
    ("json", false),
    ("kv-dtype", true),
    ("layers", false),
    ("library-reserve", true),
    ("lock", true),
    ("lora", true),
    ("max-batch", true),
    ("max-seq-len", true),
    ("mmproj", true),
    ("no-vision", false),
    ("platform", true),
    ("prefill-chunk", true),
    ("speculative-depth", true),
    ("split", true),
    ("svg", true),
    ("swa-full", false),
    ("unified", false),
    ("version", false),
    ("vram-budget", true),
    ("weights", false),
];

/// Reads the arguments after the program's name.
///
/// # Errors
/// One line that names the value and what to write instead.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let command = match parser.next().map_err(plain)? {
        None => return Ok(Request::Help(None)),
        Some(Short('h') | Long("help")) => return Ok(Request::Help(None)),
        Some(Short('V') | Long("version")) => return Ok(Request::Version),
        Some(Value(word)) => word.to_string_lossy().into_owned(),
        Some(other) => {
            return Err(format!("{} before a command; write `memtier plan MODEL …`", shown(&other)));
        }
    };
    match command.as_str() {
        "plan" | "compare" => {
            let Some(options) = options(&mut parser)? else { return Ok(Request::Help(Some(command))) };
            let (compare, found) = (command == "compare", options.models.len());
            if found != 1 + usize::from(compare) {
                let usage = if compare { "memtier compare A B" } else { "memtier plan MODEL" };
                return Err(format!("{found} models given; write `{usage}` with the flags behind"));
            }
            Ok(if compare { Request::Compare(Box::new(options)) } else { Request::Plan(Box::new(options)) })
        }
        "devices" => Ok(Request::Devices),
        "schema" => Ok(Request::Schema),
        "completions" => {
            let shell =
                parser.value().map_err(|_| format!("completions for which shell? One of {}", SHELLS.join(", ")))?;
            let shell = shell.to_string_lossy().into_owned();
            one_of("completions", &shell, &SHELLS)?;
            Ok(Request::Completions(shell))
        }
        other => Err(format!("unknown command \"{other}\"{}; see `memtier --help`", did_you_mean(other, COMMANDS))),
    }
}

/// The shells with completions.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

fn shown(argument: &lexopt::Arg<'_>) -> String {
    match argument {
        Short(letter) => format!("-{letter}"),
        Long(name) => format!("--{name}"),
        Value(value) => value.to_string_lossy().into_owned(),
    }
}

fn plain(error: lexopt::Error) -> String {
    error.to_string()
}

fn one_of<'w>(flag: &str, value: &str, words: &[&'w str]) -> Result<&'w str, String> {
    words.iter().find(|word| **word == value).copied().ok_or_else(|| {
        format!(
            "{flag}: unknown \"{value}\"{}; one of {}",
            did_you_mean(value, words.iter().copied()),
            words.join(", ")
        )
    })
}

/// The flags of a plan; `None` when help was asked for.
fn options(parser: &mut lexopt::Parser) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    while let Some(argument) = parser.next().map_err(plain)? {
        let flag = match argument {
            Value(path) => {
                options.models.push(path.into());
                continue;
            }
            Short('h') => return Ok(None),
            Short(letter) => return Err(format!("unknown flag -{letter}; see `memtier plan --help`")),
            Long(name) => name.to_owned(),
        };
        match FLAGS.iter().find(|known| known.0 == flag) {
            None => {
                let near = did_you_mean(&flag, FLAGS.iter().map(|known| known.0)).replace("\"", "");
                let near = near.replace("mean ", "mean --");
                return Err(format!("unknown flag --{flag}{near}; see `memtier plan --help`"));
            }
            Some((_, false)) if flag == "help" => return Ok(None),
            Some((_, false)) => options.switch(&flag),
            Some((_, true)) => {
                let value = parser.value().map_err(|_| format!("--{flag} needs a value; see `memtier plan --help`"))?;
                options.set(&flag, value).map_err(|error| format!("--{flag}: {error}"))?;
            }
        }
    }
    Ok(Some(options))
}

impl Options {
    fn switch(&mut self, flag: &str) {
        match flag {
            "json" => self.output = Output::Json,
            "no-vision" => self.no_vision = true,
            "swa-full" => self.swa_full = true,
            "unified" => self.unified = true,
            "weights" => self.list_weights = true,
            "layers" => self.list_layers = true,
            _ => {}
        }
    }

    fn set(&mut self, flag: &str, value: OsString) -> Result<(), String> {
        // Paths may be any bytes, everything else is text.
        match flag {
            "mmproj" => self.mmproj = Some(value.into()),
            "lora" => self.loras.push(value.into()),
            "html" => self.output = Output::Html(value.into()),
            "svg" => self.output = Output::Svg(value.into()),
            _ => {
                let text = value.into_string().map_err(|value| format!("{value:?} is not text"))?;
                return if self.set_size(flag, &text)? { Ok(()) } else { self.set_choice(flag, &text) };
            }
        }
        Ok(())
    }

    /// Sizes and counts; whether `flag` is one.
    fn set_size(&mut self, flag: &str, text: &str) -> Result<bool, String> {
        let tokens = |text: &str| count(text, "tokens", 1).map(Tokens::new);
        match flag {
            "vram-budget" => {
                for part in text.split(',') {
                    self.budgets.push(above_zero(part, size(part)?)?);
                }
            }
            "host-budget" => self.host_budget = Some(size(text)?),
            "held" => self.held = size(text)?,
            "host-cache" => self.host_cache = size(text)?,
            "context-reserve" => self.context_reserve = Some(size_in_mib(text)?),
            "library-reserve" => self.library_reserve = Some(size_in_mib(text)?),
            "max-batch" => self.max_batch = Some(count(text, "sequences", 1)?),
            "max-seq-len" => self.max_seq_len = Some(tokens(text)?),
            "block-size" => self.block_size = Some(tokens(text)?),
            "prefill-chunk" => self.prefill_chunk = Some(tokens(text)?),
            "cell-padding" => self.cell_padding = Some(tokens(text)?),
            "speculative-depth" => self.speculative_depth = count(text, "tokens", 0)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_choice(&mut self, flag: &str, text: &str) -> Result<(), String> {
        match flag {
            "device" => self.devices.push(text.to_owned()),
            "platform" => {
                self.platform = match one_of("platform", text, &["linux", "windows"])? {
                    "windows" => Platform::Windows,
                    _ => Platform::Linux,
                }
            }
            "split" => {
                self.split = match one_of("split", text, &["layer", "tensor"])? {
                    "tensor" => SplitKind::Tensor,
                    _ => SplitKind::Layer,
                }
            }
            "gpu-layers" => {
                self.gpu_layers = Some(match text {
                    "auto" => GpuLayers::Auto,
                    other => GpuLayers::Count(Layers::new(
                        count(other, "layers", 0).map_err(|error| format!("{error}, or auto"))?,
                    )),
                });
            }
            "kv-dtype" => {
                let (keys, values) = match text.split_once(',') {
                    Some((keys, values)) => (dtype(keys)?, Some(dtype(values)?)),
                    None => (dtype(text)?, None),
                };
                self.kv_dtype = Some((keys, values));
            }
            "lock" => {
                for knob in text.split(',') {
                    self.lock(knob.trim())?;
                }
            }
            "fit" => {
                self.fit = Some(match one_of("fit", text, &["batch", "context", "kv"])? {
                    "batch" => Fit::Batch,
                    "context" => Fit::Context,
                    _ => Fit::Kv,
                });
            }
            "accounting" => {
                self.accounting = match one_of("accounting", text, &["memtier", "llama.cpp", "vllm"])? {
                    "llama.cpp" => Accounting::LlamaCpp,
                    "vllm" => Accounting::Vllm,
                    _ => Accounting::Memtier,
                };
            }
            _ => {
                self.colour = match one_of("color", text, &["auto", "always", "never"])? {
                    "always" => Colour::Always,
                    "never" => Colour::Never,
                    _ => Colour::Auto,
                };
            }
        }
        Ok(())
    }

    fn lock(&mut self, knob: &str) -> Result<(), String> {
        let locks = &mut self.locks;
        let lock = match one_of("lock", &knob.replace('_', "-"), &KNOBS)? {
            "max-batch" => &mut locks.max_batch,
            "max-seq-len" => &mut locks.max_seq_len,
            "prefill-chunk" => &mut locks.prefill_chunk,
            "kv-dtype" => &mut locks.kv_dtype,
            "vision" => &mut locks.vision,
            "speculative-depth" => &mut locks.speculative_depth,
            "gpu-layers" => &mut locks.gpu_layers,
            _ => &mut locks.budget,
        };
        *lock = true;
        Ok(())
    }
}

/// What `--lock` takes.
pub const KNOBS: [&str; 8] =
    ["budget", "gpu-layers", "kv-dtype", "max-batch", "max-seq-len", "prefill-chunk", "speculative-depth", "vision"];

fn above_zero(text: &str, bytes: Bytes) -> Result<Bytes, String> {
    if bytes.is_zero() { Err(format!("\"{text}\" is nothing to plan with; write a size above 0")) } else { Ok(bytes) }
}

fn dtype(text: &str) -> Result<KvDtype, String> {
    let plain = text.trim().to_ascii_lowercase();
    // Names of the same thing elsewhere.
    let name = match plain.as_str() {
        "fp16" | "float16" | "half" => "f16",
        "bfloat16" => "bf16",
        "fp32" | "float32" => "f32",
        "fp8_e4m3" | "fp8_e5m2" | "f8" => "fp8",
        other => other,
    };
    name.parse().map_err(|_| {
        let names = KvDtype::ALL.map(KvDtype::name);
        format!("unknown element type \"{text}\"{}; one of {}", did_you_mean(&plain, names), names.join(", "))
    })
}
