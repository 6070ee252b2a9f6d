//! What the macros cost the compiler: 100 annotated structs of 20 fields, beside the same items without the macros.
//!
//! "By hand" is the macros' own output, so it stays the same program when they change.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::table::{Measured, Row};
use crate::failure::Failure;
use crate::{paths, process};

const STRUCTS: usize = 100;
const FIELDS: usize = 20;

/// The two crates.
const ANNOTATED: &str = "annotated";
const BY_HAND: &str = "by-hand";

/// Checks both crates in turns: the first time, and again after an edit that changes nothing.
///
/// # Errors
/// One of them does not compile, or cannot be written.
pub(super) fn measure(repeats: u64) -> Result<Vec<Row>, Failure> {
    let crates = Crates::write()?;
    let mut rows = Vec::new();
    for (what, incremental) in [("from nothing", false), ("after an edit", true)] {
        let mut seconds = [Vec::new(), Vec::new()];
        // The first round builds what both depend on, and fills the incremental cache.
        for round in 0..=repeats {
            for (name, seconds) in [ANNOTATED, BY_HAND].into_iter().zip(&mut seconds) {
                let taken = crates.check(name, incremental)?;
                if round > 0 {
                    seconds.push(taken);
                }
            }
        }
        let [ours, theirs] = seconds.map(Measured::of);
        rows.push(Row {
            what: format!("cargo check, {STRUCTS} structs x {FIELDS} fields, {what}"),
            unit: "CPU s".to_owned(),
            larger_is_better: false,
            ours,
            peer: theirs.map(|theirs| ("the expansion, by hand".to_owned(), theirs)),
        });
    }
    Ok(rows)
}

/// A workspace of its own: the annotated crate, and its expansion.
struct Crates(PathBuf);

impl Crates {
    fn write() -> Result<Self, Failure> {
        let crates = Crates(paths::target().join("compile-time"));
        let members = format!("[workspace]\nresolver = \"3\"\nmembers = [\"{ANNOTATED}\", \"{BY_HAND}\"]\n");
        crates.file("Cargo.toml", &members)?;
        // The same versions, which are there already.
        let lock = paths::root().join("Cargo.lock");
        crates
            .file("Cargo.lock", &std::fs::read_to_string(&lock).map_err(|error| Failure::io("read", &lock, &error))?)?;
        for name in [ANNOTATED, BY_HAND] {
            let memtier = paths::root().join("memtier");
            let manifest = format!(
                "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nmemtier = {{ path = \
                 {memtier:?} }}\n"
            );
            crates.file(&format!("{name}/Cargo.toml"), &manifest)?;
        }
        crates.file(&format!("{ANNOTATED}/src/lib.rs"), &annotated())?;
        crates.file(&format!("{BY_HAND}/src/lib.rs"), "")?;
        let mut expand = crates.cargo("rustc", ANNOTATED);
        // The pinned compiler, allowed to print what it expanded.
        expand.args(["--profile", "check", "--", "-Zunpretty=expanded"]).env("RUSTC_BOOTSTRAP", "1");
        let expanded = by_hand(&process::output(&mut expand)?);
        crates.file(&format!("{BY_HAND}/src/lib.rs"), &expanded)?;
        Ok(crates)
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        let trouble = |error: std::io::Error| Failure::io("write", &path, &error);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(trouble)?;
        std::fs::write(&path, text).map_err(trouble)
    }

    fn cargo(&self, what: &str, package: &str) -> Command {
        let mut command = Command::new(paths::cargo());
        command.current_dir(&self.0).args([what, "--quiet", "--offline", "--package", package]);
        command.env("CARGO_TARGET_DIR", self.0.join("target")).env_remove("RUSTFLAGS");
        command
    }

    /// CPU seconds of a check: wall time where the system does not tell.
    fn check(&self, name: &str, incremental: bool) -> Result<f64, Failure> {
        let source = self.0.join(name).join("src/lib.rs");
        let text = std::fs::read_to_string(&source).map_err(|error| Failure::io("read", &source, &error))?;
        self.file(&format!("{name}/src/lib.rs"), &text)?;
        let mut check = self.cargo("check", name);
        check.env("CARGO_INCREMENTAL", if incremental { "1" } else { "0" });
        let (start, before) = (Instant::now(), cpu_of_children());
        process::output(&mut check)?;
        Ok(match (before, cpu_of_children()) {
            (Some(before), Some(after)) => after - before,
            _ => start.elapsed().as_secs_f64(),
        })
    }
}

/// CPU seconds of the children that ended, in user and in system mode.
fn cpu_of_children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 16 and 17; the second one is the program's name, in parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    // Linux counts hundredths, whatever its timer does.
    Some((ticks()? + ticks()?) / 100.0)
}

fn annotated() -> String {
    let mut text = String::from(
        "//! Annotated.\n/// Numbers.\npub struct Dims {\n    /// Rows.\n    pub rows: usize,\n    /// Columns.\n    pub columns: \
         usize,\n}\n",
    );
    for number in 0..STRUCTS {
        let _ = writeln!(
            text,
            "/// Storage {number}.\n#[memtier::tier(ModelResident, dims = Dims)]\npub struct Storage{number} {{"
        );
        for field in 0..FIELDS {
            let _ =
                writeln!(text, "    /// Field {field}.\n    #[shape(rows, columns * 2)]\n    pub field{field}: f32,");
        }
        text.push_str("}\n");
    }
    text
}

/// What the compiler printed, as a person would have written it: without the prelude that it adds and the notes from the first
/// stage of the macros to the second.
fn by_hand(expanded: &str) -> String {
    let is_noise = |line: &str| {
        let line = line.trim_start();
        ["#[__mt_", "#![feature(prelude_import)]", "extern crate std;", "#[prelude_import]", "use std::prelude::"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    expanded.lines().filter(|line| !is_noise(line)).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_additions_and_the_macros_notes_are_left_out() {
        let expanded = "#![feature(prelude_import)]\n//! A\nextern crate std;\n#[prelude_import]\nuse std::prelude::rust_2024::*;\n\
                        #[__mt_tier(ModelResident)]\nstruct A {\n    #[__mt_field(element)]\n    a: u8,\n}\n";
        assert_eq!(by_hand(expanded), "//! A\nstruct A {\n    a: u8,\n}\n");
    }

    #[test]
    fn the_crate_has_as_many_fields_as_it_says() {
        let text = annotated();
        assert_eq!(text.matches("#[memtier::tier").count(), STRUCTS);
        assert_eq!(text.matches("#[shape").count(), STRUCTS * FIELDS);
    }

    #[test]
    fn cpu_time_of_children_grows() {
        let before = cpu_of_children();
        let done = Command::new("sh").args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]).status();
        assert!(done.is_ok_and(|status| status.success()));
        if let (Some(before), Some(after)) = (before, cpu_of_children()) {
            assert!(after > before);
        }
    }
}
