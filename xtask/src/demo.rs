//! `cargo xtask demo`: from nothing to a real model's answer in one command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::cli::{Check, Command, Flag, Parsed};
use crate::failure::Failure;
use crate::fetch::{self, catalog};
use crate::{build, emulated, gpu, paths, process};

/// The command's face. Flags other than `--model` go to the engine as they are.
pub const COMMAND: Command = Command {
    name: "demo",
    about: "fetches a small real model, plans its memory, generates text and prints the memory report",
    flags: &[
        Flag {
            name: "model",
            value: "NAME|PATH",
            check: Check::Any,
            help: "smollm2 (default, 98 MB), gemma3 (253 MB), or a GGUF file",
        },
        Flag {
            name: "prompt",
            value: "TEXT",
            check: Check::Many,
            help: "what to answer; may be given several times: all are answered at once",
        },
        Flag {
            name: "raw",
            value: "",
            check: Check::Any,
            help: "continue the prompt as it is, without a chat template",
        },
        Flag { name: "max-tokens", value: "N", check: Check::Count, help: "length of an answer" },
        Flag {
            name: "device",
            value: "cpu|cuda:N",
            check: Check::Any,
            help: "what serves the model (cpu); for a GPU the kernels are compiled first",
        },
        Flag {
            name: "emulated",
            value: "",
            check: Check::Any,
            help: "on a GPU that this machine emulates: for a look at a few tokens, no times",
        },
        Flag { name: "threads", value: "N", check: Check::Count, help: "CPU threads; all cores by default" },
        Flag {
            name: "budget",
            value: "SIZE",
            check: Check::Any,
            help: "memory budget, such as 512MiB: a plan that does not fit is refused with what to change",
        },
        Flag { name: "max-seq-len", value: "N", check: Check::Count, help: "tokens of a sequence, prompt and answer" },
        Flag { name: "max-batch", value: "N", check: Check::Count, help: "sequences at once" },
        Flag { name: "prefill-chunk", value: "N", check: Check::Count, help: "prompt tokens of one pass" },
        Flag { name: "block-tokens", value: "N", check: Check::Count, help: "tokens of a KV block" },
        Flag {
            name: "lock",
            value: "NAME",
            check: Check::Many,
            help: "not to be suggested by a refusal: max-batch, max-seq-len, prefill-chunk or budget",
        },
        Flag { name: "temperature", value: "X", check: Check::Any, help: "0 (default) is greedy" },
        Flag { name: "top-p", value: "X", check: Check::Any, help: "for a temperature above 0" },
        Flag { name: "top-k", value: "N", check: Check::Any, help: "for a temperature above 0" },
        Flag {
            name: "seed",
            value: "N",
            check: Check::Any,
            help: "for a temperature above 0: equal seeds, equal answers",
        },
        Flag { name: "json", value: "FILE", check: Check::Any, help: "also write the figures as JSON" },
    ],
    words: Some(("-- FLAGS…", "more flags for the engine, unchecked")),
    examples: &[
        ("cargo xtask demo", "SmolLM2 answers a question; the memory report follows"),
        (
            "cargo xtask demo --model gemma3 --prompt 'The sea is' --max-tokens 100",
            "Gemma 3, with sliding-window attention",
        ),
        ("cargo xtask demo --device cuda:0", "the same on the first NVIDIA GPU"),
        ("cargo xtask demo --device cuda:0 --emulated --max-tokens 4", "the same without a GPU, on an emulated one"),
        ("cargo xtask demo --budget 64MiB", "a plan that cannot fit: the refusal, itemised"),
        ("cargo xtask demo --model ~/models/my.gguf --threads 8", "your own GGUF file (Llama family or Gemma 3)"),
    ],
};

/// Runs the command. The engine's exit code is passed on.
///
/// # Errors
/// An unknown model, what fetching says, a failing build, the engine's failure.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    let model = parsed.value("model").cloned().unwrap_or_else(|| catalog::MODELS[0].name.into());
    let file = resolve(&model)?;
    let mut arguments = parsed.forward(&["model", "emulated"]);
    if let Some(json) = parsed.value("json") {
        // The engine runs where the user is, so relative paths mean what they say; only the order matters: a report
        // that cannot be written should not be discovered after minutes of work.
        writable(Path::new(json))?;
    }
    let device = parsed.value("device").and_then(|device| device.to_str());
    let mut command = engine(device, parsed.has("emulated"))?;
    arguments.extend(parsed.words);
    command.arg("demo").arg("--model-file").arg(file).args(arguments);
    match process::run(&mut command)? {
        status if status.success() => Ok(()),
        status => Err(Failure::child(status)),
    }
}

/// The engine that serves from `device`. For a GPU it is built with CUDA, and finds its kernels compiled; where there is no GPU at
/// all they are not, and the engine says what is missing. An emulated one is built with it.
fn engine(device: Option<&str>, on_emulated: bool) -> Result<Process, Failure> {
    if !device.is_some_and(|device| device.starts_with("cuda")) {
        return Ok(Process::new(build::binary("memtier-engine", "memtier-engine")?));
    }
    let mut command = Process::new(build::binary_with("memtier-engine", "memtier-engine", "cuda")?);
    if on_emulated {
        let folder = paths::target().join("emulated");
        emulated::stage(&folder, &[])?;
        let library = emulated::library_path(&folder.join("driver"));
        command.env("LD_LIBRARY_PATH", library).env("MEMTIER_KERNELS", folder.join("kernels"));
        return Ok(command);
    }
    let folder = paths::target().join("kernels");
    if Path::new("/dev/nvidia0").exists() && std::env::var_os("MEMTIER_KERNELS").is_none() {
        gpu::compile_kernels(&folder, &[])?;
        command.env("MEMTIER_KERNELS", folder);
    }
    Ok(command)
}

/// The model file that `--model` means: a known name is fetched when needed, anything else is a path.
///
/// # Errors
/// Neither a name nor a file, or what fetching says.
pub fn resolve(model: &OsString) -> Result<PathBuf, Failure> {
    if let Some(known) = model.to_str().and_then(catalog::find) {
        return fetch::ensure(known, &paths::cache()?);
    }
    let path = PathBuf::from(model);
    if path.is_file() {
        return Ok(path);
    }
    let given = model.to_string_lossy();
    let what = if path.is_dir() { "is a folder" } else { "is not a file" };
    Err(Failure::usage(match given.contains(['/', '\\', '.']) {
        true => format!("--model {given} {what}; pass smollm2, gemma3 or the path of a GGUF file"),
        false => format!("{}, or pass the path of a GGUF file (--model {given} {what})", fetch::unknown(&given)),
    }))
}

fn writable(file: &Path) -> Result<(), Failure> {
    let existed = file.exists();
    std::fs::File::options().append(true).create(true).open(file).map_err(|error| {
        let path = file.display();
        Failure::usage(format!("cannot write --json {path}: {error}; name a file in a folder that you may write to"))
    })?;
    if !existed {
        // Only a probe: the engine writes it when there is something to write.
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}
