//! `cargo xtask bench`: tables against peers, measured here and now.

mod compile_time;
mod core;
mod engine;
mod json;
mod machine;
mod table;

use std::path::Path;

use crate::cli::{self, Check, Command, Flag, Parsed};
use crate::failure::Failure;
use json::Json;
use machine::Machine;
use table::Row;

/// The command's face.
pub const COMMAND: Command = Command {
    name: "bench",
    about: "measures memtier beside its peers and prints the ratios",
    flags: &[
        Flag { name: "threads", value: "N", check: Check::Count, help: "CPU threads of both engines; all by default" },
        Flag { name: "repeats", value: "N", check: Check::Count, help: "interleaved repetitions, 5 by default" },
        Flag { name: "json", value: "FILE", check: Check::Any, help: "also write the tables as JSON" },
        Flag { name: "list", value: "", check: Check::Any, help: "list the benches and stop" },
    ],
    words: Some(("NAME…", "only these benches; all when none is named")),
    examples: &[
        ("cargo xtask bench", "everything"),
        ("cargo xtask bench core", "what a block, a scratch buffer, a plan cost"),
        ("cargo xtask bench smollm2 --threads 1 --json smollm2.json", "one model on one core, also as JSON"),
    ],
};

/// Every bench: its name and what it compares.
const BENCHES: &[(&str, &str)] = &[
    ("core", "pool, arena, scratch and planner beside a mutex pool, bumpalo and slab"),
    ("compile-time", "the macros beside their own expansion, written out"),
    ("smollm2", "SmolLM2-135M prefill and decode beside llama.cpp"),
    ("gemma3", "Gemma-3-270M prefill and decode beside llama.cpp"),
];

/// What the benches of one run share.
#[derive(Debug, Clone, Copy)]
struct Settings {
    threads: u64,
    repeats: u64,
}

/// Runs the command.
///
/// # Errors
/// An unknown name, a failing build, a peer that cannot be set up, a file that cannot be written.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    if parsed.has("list") {
        BENCHES.iter().for_each(|(name, about)| println!("{name:<12} {about}"));
        return Ok(());
    }
    let names = parsed.names();
    for name in &names {
        if !BENCHES.iter().any(|(known, _)| known == name) {
            let known = BENCHES.iter().map(|(known, _)| *known);
            let hint = cli::did_you_mean(name, "", known.clone());
            let all = known.collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("no bench '{name}'{hint}; there are: {all}")));
        }
    }
    let machine = Machine::look();
    let settings = Settings {
        threads: parsed.count("threads").unwrap_or(machine.cpus),
        repeats: parsed.count("repeats").unwrap_or(5),
    };
    println!("{machine}");
    let mut tables = Vec::new();
    for (name, about) in BENCHES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)) {
        let rows = match *name {
            "core" => core::measure()?,
            "compile-time" => compile_time::measure(settings.repeats)?,
            model => engine::measure(model, settings)?,
        };
        println!("\n{name}: {about}");
        print!("{}", table::render(&rows));
        tables.push((*name, rows));
    }
    match parsed.value("json") {
        Some(file) => write(Path::new(file), &machine, settings, &tables),
        None => Ok(()),
    }
}

fn write(file: &Path, machine: &Machine, settings: Settings, tables: &[(&str, Vec<Row>)]) -> Result<(), Failure> {
    let tables =
        tables.iter().map(|(name, rows)| ((*name).to_owned(), Json::List(rows.iter().map(Row::json).collect())));
    let report = Json::object([
        ("machine", machine.json()),
        ("threads", Json::Number(settings.threads as f64)),
        ("repeats", Json::Number(settings.repeats as f64)),
        ("benches", Json::Object(tables.collect())),
    ]);
    std::fs::write(file, format!("{report}\n")).map_err(|error| Failure::io("write", file, &error))
}
