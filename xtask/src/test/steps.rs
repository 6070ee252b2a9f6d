//! The table of checks. Cheap ones first: a format error should not surface after twenty minutes.

use std::path::PathBuf;
use std::process::Command;

use crate::build::cargo;
use crate::emulated;
use crate::fetch::catalog::MODELS;
use crate::gpu;
use crate::paths;

/// One row of `cargo xtask test --list`.
#[derive(Debug)]
pub(super) struct Step {
    /// What the user types.
    pub(super) name: &'static str,
    /// One line.
    pub(super) about: &'static str,
    /// Whether the models must be in the cache.
    pub(super) models: bool,
    /// Whether the Python environment with llama.cpp must be there.
    pub(super) oracle: bool,
    /// Whether the compiler of CUDA kernels must be there.
    pub(super) nvrtc: bool,
    /// The commands, in order. All run, whatever the ones before them said.
    pub(super) tasks: fn(&Given) -> Vec<Task>,
}

/// What a step is given from outside.
#[derive(Debug, Default, Clone)]
pub(super) struct Given {
    /// The models' folder.
    pub(super) cache: PathBuf,
    /// A Python with llama.cpp, for steps that asked for it.
    pub(super) python: Option<PathBuf>,
    /// Variables that say where NVRTC is, for steps that asked for it.
    pub(super) nvrtc: Vec<(String, String)>,
}

/// One command of a step.
pub(super) struct Task {
    /// What failed, for the summary.
    pub(super) name: String,
    /// The command.
    pub(super) command: Command,
    /// How its tests are counted.
    pub(super) counts_as: CountsAs,
}

/// How a command's tests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountsAs {
    /// As one check that holds when the command succeeds.
    OneCheck,
    /// By the results that it prints; printing none is a failure.
    PrintedTests,
}

/// Every step.
pub(super) const STEPS: &[Step] = &[
    step("fmt", "rustfmt leaves every file as it is", fmt),
    step("clippy", "clippy and rustc warn nowhere", clippy),
    Step { models: true, ..step("core", "unit and integration tests of everything but the engine", core) },
    Step {
        nvrtc: true,
        ..step("kernels", "every CUDA kernel compiles for every target, into the instructions that are meant", kernels)
    },
    Step { nvrtc: true, ..step("emulated", "the CUDA backend and its kernels on an emulated GPU", on_emulated) },
    step("ui", "misuse does not compile and says why; its legal twins run", ui),
    Step { models: true, ..step("engine", "the reference engine and its kernels, on real models", engine) },
    Step { models: true, ..step("examples", "every numbered example runs", examples) },
    step("docs", "documentation builds without warnings, its examples run", docs),
    Step { models: true, ..step("demo", "`cargo xtask demo` answers, with each model", demo) },
    Step {
        models: true,
        oracle: true,
        ..step("oracle", "the engine beside a llama.cpp that runs here and now", oracle)
    },
];

const fn step(name: &'static str, about: &'static str, tasks: fn(&Given) -> Vec<Task>) -> Step {
    Step { name, about, models: false, oracle: false, nvrtc: false, tasks }
}

fn fmt(_: &Given) -> Vec<Task> {
    vec![check("cargo fmt --check", cargo(["fmt", "--all", "--check"]))]
}

fn clippy(_: &Given) -> Vec<Task> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"];
    let cuda = ["clippy", "-p", "memtier-engine", "--features", "cuda", "--all-targets", "--", "-D", "warnings"];
    vec![check("cargo clippy", cargo(arguments)), check("cargo clippy, the engine with CUDA", cargo(cuda))]
}

/// The packages with a step of their own.
const APART: &[&str] = &["engine-kernels", "memtier-engine", "ui-tests"];

/// Everything but those.
fn others<'a>(more: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = cargo(["test", "--workspace", "--no-fail-fast"]);
    command.args(APART.iter().flat_map(|package| ["--exclude", package])).args(more);
    command
}

/// Everything else, so that a new package is tested without a word here.
fn core(_: &Given) -> Vec<Task> {
    let mut command = others(["--lib", "--bins", "--tests"]);
    // So that a test which cannot run here (no GPU) is heard saying so.
    command.args(["--", "--show-output"]);
    vec![tests("cargo test", command)]
}

/// Machine code for `sm_90a`, `sm_120a` and `sm_120f` by NVRTC, looked at with the disassembler: spills, opcodes, what is read early.
fn kernels(given: &Given) -> Vec<Task> {
    let mut command = cargo(["test", "-p", "memtier-cuda", "--lib", "every_kernel", "--", "--show-output"]);
    command.envs(given.nvrtc.iter().map(|(name, value)| (name, value)));
    vec![tests("kernels as machine code", command)]
}

/// The programs of `core` that a GPU runs, once more; cargo builds them once. Where a device model of ours is what answers, a wrong
/// answer is a failure and no device at all is one, too.
fn on_emulated(given: &Given) -> Vec<Task> {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return Vec::new();
    }
    let [kernels, driver] = ["kernels", "driver"].map(|name| paths::target().join("emulated").join(name));
    let mut compiler = gpu::compiler(&[], &kernels, &gpu::ALSO);
    compiler.arg("--emulated").envs(given.nvrtc.iter().map(|(name, value)| (name, value)));
    let mut command = others(["--test", "gpu_*", "--test", "kernel_macro", "--", "--show-output"]);
    let mut engine = cargo(["test", "--no-fail-fast", "-p", "memtier-engine", "--features", "cuda"]);
    engine.args(["--test", "gpu*", "--", "--show-output"]);
    // Once more, what is at the edges: with the blocks of another device, and looking for races in shared memory.
    let mut races = others(["--test", "gpu_edges", "--test", "gpu_sample", "--", "--show-output"]);
    races.env("MEMTIER_EMULATED_CAPABILITY", "9.0").env("MEMTIER_EMULATOR_RACECHECK", "1");
    // There two blocks share long rows of weights: of 4 bits, which has all that clusters do.
    let mut clusters = others(["--test", "gpu_quant", "--", "large_matrices_of_every_kind", "--show-output"]);
    clusters.env("MEMTIER_EMULATED_CAPABILITY", "9.0");
    for tests in [&mut command, &mut races, &mut clusters, &mut engine] {
        tests
            .env("LD_LIBRARY_PATH", emulated::library_path(&driver))
            .env("MEMTIER_KERNELS", &kernels)
            .env("MEMTIER_REQUIRE_GPU", "1");
    }
    vec![
        check("the emulated driver", emulated::driver()),
        check("the emulated driver as libcuda.so", emulated::install(&driver)),
        check("kernels as PTX", compiler),
        tests("GPU tests on the emulated device", command),
        tests("the edges of kernels on another emulated device, races looked for", races),
        tests("blocks that share rows of weights, on that device", clusters),
        tests("GPU tests of the engine on the emulated device", engine),
    ]
}

fn ui(_: &Given) -> Vec<Task> {
    vec![tests("cargo test -p ui-tests", cargo(["test", "-p", "ui-tests", "--no-fail-fast"]))]
}

/// Optimised: unoptimised, a real model takes minutes for what takes seconds.
fn engine(_: &Given) -> Vec<Task> {
    let arguments = ["test", "--release", "--no-fail-fast", "-p", "engine-kernels", "-p", "memtier-engine"];
    let mut command = cargo(arguments);
    command.args(["--lib", "--bins", "--tests", "--", "--show-output"]);
    vec![tests("cargo test --release", command)]
}

fn examples(_: &Given) -> Vec<Task> {
    let mut tasks = vec![check("cargo build --examples", cargo(["build", "-p", "memtier-examples", "--examples"]))];
    for name in example_names() {
        tasks.push(check(&name, cargo(["run", "-q", "-p", "memtier-examples", "--example", &name])));
    }
    tasks
}

/// The numbered examples, `examples/01-….rs` and so on, in order.
fn example_names() -> Vec<String> {
    let entries = std::fs::read_dir(paths::root().join("examples")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbered = names.filter(|name| name.starts_with(|first: char| first.is_ascii_digit()));
    let mut names: Vec<String> = numbered.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    names.sort();
    names
}

fn docs(_: &Given) -> Vec<Task> {
    let mut pages = cargo(["doc", "--workspace", "--no-deps"]);
    pages.env("RUSTDOCFLAGS", "-D warnings");
    let doctests = cargo(["test", "--workspace", "--doc", "--no-fail-fast"]);
    vec![check("cargo doc", pages), tests("cargo test --doc", doctests)]
}

fn demo(_: &Given) -> Vec<Task> {
    let run = |model: &str| {
        let arguments = ["xtask", "demo", "--max-tokens", "16", "--model", model];
        check(&format!("cargo xtask demo --model {model}"), cargo(arguments))
    };
    MODELS.iter().map(|model| run(model.name)).collect()
}

fn oracle(given: &Given) -> Vec<Task> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
    let run = |file: &str| {
        let mut command = Command::new(given.python.as_deref().unwrap_or("python3".as_ref()));
        command
            .current_dir(paths::root())
            .arg("xtask/python/against_llama.py")
            .arg(given.cache.join(file))
            .arg(&threads);
        // How to start the engine: cargo knows where its binary is.
        command.arg(paths::cargo()).args(["run", "--quiet", "--release", "-p", "memtier-engine", "--"]);
        tests(&format!("against llama.cpp: {file}"), command)
    };
    MODELS.iter().map(|model| run(model.file)).collect()
}

fn check(name: &str, command: Command) -> Task {
    Task { name: name.to_owned(), command, counts_as: CountsAs::OneCheck }
}

fn tests(name: &str, command: Command) -> Task {
    Task { name: name.to_owned(), command, counts_as: CountsAs::PrintedTests }
}
