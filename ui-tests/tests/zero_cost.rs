//! The typed path compiles to the instructions of raw pointers, or to a few more that the manual explains.
//!
//! `zero_cost/pairs.rs` is compiled optimised, as a crate of its own, and the mnemonics of each pair are compared.
//! `MEMTIER_UI_SHOW=1` prints them.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Pairs, and how many more instructions the typed one may have; zero means the same ones. What more there is, is explained in
/// `memtier::manual::cost`.
const PAIRS: &[(&str, usize)] = &[("pack", 0), ("access", 0), ("take", 5), ("operation", 70)];

#[test]
fn the_typed_path_is_as_short_as_raw_pointers() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the instructions were looked at on x86_64 only");
        return;
    }
    let functions = functions(&assembly());
    let mut wrong = Vec::new();
    for (name, more) in PAIRS {
        let [typed, raw] = ["typed", "raw"].map(|how| &functions[&format!("{name}_{how}")]);
        println!("{name}: typed {}, raw {}", typed.len(), raw.len());
        if env::var_os("MEMTIER_UI_SHOW").is_some() {
            println!("  typed: {}\n  raw:   {}", typed.join("; "), raw.join("; "));
        }
        let same = match more {
            0 => mnemonics(typed) == mnemonics(raw),
            more => typed.len() <= raw.len() + more,
        };
        if !same {
            wrong.push(format!("{name}: {} instructions, {} with raw pointers", typed.len(), raw.len()));
        }
    }
    assert!(wrong.is_empty(), "more than the manual explains:\n{}", wrong.join("\n"));
}

/// What is done, without where: registers are the allocator's business, and so is on which side of a comparison they stand.
fn mnemonics(instructions: &[String]) -> Vec<&str> {
    let name = |line: &'_ String| match line.split_whitespace().next()? {
        "seta" | "setb" => Some("set"),
        "movabsq" => Some("movq"),
        _ => None,
    };
    instructions.iter().filter_map(|line| name(line).or(line.split_whitespace().next())).collect()
}

/// Compiles the pairs and returns their assembly.
fn assembly() -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("ui-tests lies in the workspace");
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zero-cost");
    fs::create_dir_all(&here).expect("the target folder can be written");
    let memtier = workspace.join("memtier");
    let pairs = workspace.join("ui-tests/tests/zero_cost/pairs.rs");
    let manifest = format!(
        "[package]\nname = \"zero-cost\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[lib]\npath = {pairs:?}\n\n\
         [dependencies]\nmemtier = {{ path = {memtier:?} }}\n\n\
         [profile.release]\ncodegen-units = 1\n\n[workspace]\n"
    );
    fs::write(here.join("Cargo.toml"), manifest).expect("the manifest can be written");
    // The same versions, which are there already.
    fs::copy(workspace.join("Cargo.lock"), here.join("Cargo.lock")).expect("the workspace has a lock file");
    let output = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .current_dir(&here)
        .args(["rustc", "--offline", "--release", "--lib", "--", "--emit", "asm"])
        .env("CARGO_TARGET_DIR", here.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "the pairs do not build:\n{}", String::from_utf8_lossy(&output.stderr));
    let found = newest(&here.join("target/release/deps")).expect("rustc wrote assembly");
    fs::read_to_string(found).expect("assembly is text")
}

/// The latest assembly of the pairs: an older one may lie beside it.
fn newest(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let ours = files.filter(|path| path.extension().is_some_and(|end| end == "s"));
    ours.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok())
}

/// The instructions of each function. Functions that the compiler found to be the same are one.
fn functions(assembly: &str) -> BTreeMap<String, Vec<String>> {
    let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in assembly.lines() {
        let text = line.trim();
        if let Some((name, of)) = text.strip_prefix(".set ").and_then(|rest| rest.split_once(", ")) {
            if let Some(same) = functions.get(of).cloned() {
                functions.insert(name.to_owned(), same);
            }
        } else if let Some(label) = line.strip_suffix(':').filter(|label| !label.starts_with(['.', '\t', '#'])) {
            current = Some(label.to_owned());
            functions.insert(label.to_owned(), Vec::new());
        } else if text.starts_with(".Lfunc_end") {
            current = None;
        } else if let (Some(name), false) = (&current, text.is_empty() || text.starts_with(['.', '#'])) {
            functions.entry(name.clone()).or_default().push(text.replace('\t', " "));
        }
    }
    functions
}
