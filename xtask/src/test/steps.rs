//! The table of checks. Cheap ones first: a format error should not surface after twenty minutes.

use std::process::Command;

use crate::build::cargo;
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
    /// The commands, in order. All run, whatever the ones before them said.
    pub(super) tasks: fn() -> Vec<Task>,
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
    Step { name: "fmt", about: "rustfmt leaves every file as it is", models: false, oracle: false, tasks: fmt },
    Step { name: "clippy", about: "clippy and rustc warn nowhere", models: false, oracle: false, tasks: clippy },
    Step {
        name: "core",
        about: "unit and integration tests of memtier, its macros, the model reader, the CUDA crate, xtask",
        models: true,
        oracle: false,
        tasks: core,
    },
    Step {
        name: "engine",
        about: "the reference engine and its kernels, on real models and against llama.cpp",
        models: true,
        oracle: true,
        tasks: engine,
    },
    Step { name: "examples", about: "every numbered example runs", models: true, oracle: false, tasks: examples },
    Step { name: "ui", about: "misuse does not compile, and says why", models: false, oracle: false, tasks: ui },
    Step {
        name: "docs",
        about: "documentation builds without warnings, its examples run",
        models: false,
        oracle: false,
        tasks: docs,
    },
    Step {
        name: "demo",
        about: "`cargo xtask demo` answers, with each model",
        models: true,
        oracle: false,
        tasks: demo,
    },
];

/// The packages that need no optimisation to be tested in reasonable time.
const CORE: &[&str] = &["memtier", "memtier-macros", "memtier-model", "memtier-cli", "memtier-cuda", "memtier-bench", "xtask"];

fn fmt() -> Vec<Task> {
    vec![check("cargo fmt --check", cargo(["fmt", "--all", "--check"]))]
}

fn clippy() -> Vec<Task> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    vec![check("cargo clippy", cargo(arguments))]
}

fn core() -> Vec<Task> {
    let mut command = cargo(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]);
    command.args(CORE.iter().flat_map(|package| ["-p", package]));
    vec![tests("cargo test", command)]
}

fn engine() -> Vec<Task> {
    let arguments = ["test", "--release", "--no-fail-fast", "-p", "engine-kernels", "-p", "memtier-engine"];
    vec![tests("cargo test --release", cargo(arguments))]
}

fn examples() -> Vec<Task> {
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

fn ui() -> Vec<Task> {
    vec![tests("cargo test -p ui-tests", cargo(["test", "-p", "ui-tests", "--no-fail-fast"]))]
}

fn docs() -> Vec<Task> {
    let mut pages = cargo(["doc", "--workspace", "--no-deps"]);
    pages.env("RUSTDOCFLAGS", "-D warnings");
    let doctests = cargo(["test", "--workspace", "--doc", "--no-fail-fast"]);
    vec![check("cargo doc", pages), tests("cargo test --doc", doctests)]
}

fn demo() -> Vec<Task> {
    let run = |model: &str| {
        let arguments = ["xtask", "demo", "--max-tokens", "16", "--model", model];
        check(&format!("cargo xtask demo --model {model}"), cargo(arguments))
    };
    crate::fetch::catalog::MODELS.iter().map(|model| run(model.name)).collect()
}

fn check(name: &str, command: Command) -> Task {
    Task { name: name.to_owned(), command, counts_as: CountsAs::OneCheck }
}

fn tests(name: &str, command: Command) -> Task {
    Task { name: name.to_owned(), command, counts_as: CountsAs::PrintedTests }
}
