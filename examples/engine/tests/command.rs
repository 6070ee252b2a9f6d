//! The command as its users run it: what is wrong is one line with the value and the remedy, and nothing panics.

mod common;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use common::SMOLLM2;
use memtier_model::write::{GgufWriter, TinyModel};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memtier-engine")).args(args).output().unwrap()
}

/// The one line on standard error of a run that must fail.
fn refused(args: &[&str]) -> String {
    let Output { status, stderr, .. } = run(args);
    let text = String::from_utf8(stderr).unwrap();
    assert!(!status.success(), "{args:?} succeeded");
    assert!(status.code().is_some_and(|code| code != 101) && !text.contains("panicked"), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    text
}

/// A file that goes when the test ends.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("memtier-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tiny() -> Vec<u8> {
    TinyModel::llama(5).to_gguf().unwrap().to_bytes()
}

#[test]
fn a_tiny_model_answers_and_allocates_nothing_while_serving() {
    for (name, model) in [("llama", TinyModel::llama(5)), ("gemma3", TinyModel::gemma3(5))] {
        let file = Temporary::new(&format!("{name}.gguf"), &model.to_gguf().unwrap().to_bytes());
        let json = Temporary::new(&format!("{name}.json"), b"");
        let prompt = "ab ".repeat(30);
        let size = ["--max-seq-len", "192", "--prefill-chunk", "16", "--threads", "2"];
        let mut args = vec!["demo", "--model-file", file.path(), "--raw", "--prompt", &prompt, "--json", json.path()];
        args.extend(["--prompt", "c", "--max-tokens", "40"]);
        args.extend(size);
        let Output { status, stdout, stderr } = run(&args);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let text = String::from_utf8(stdout).unwrap();
        assert!(text.ends_with("allocations while serving: device 0, pinned 0, host heap 0\n"), "{text}");
        let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json.0).unwrap()).unwrap();
        assert_eq!(figures["answers"].as_array().map(Vec::len), Some(2));
        assert!(figures["decode_tokens"].as_u64() >= Some(39));
    }
}

#[test]
fn broken_files_are_one_line() {
    let good = tiny();
    let cut = Temporary::new("cut.gguf", &good[..good.len() / 2]);
    let header = Temporary::new("header.gguf", &good[..40]);
    let empty = Temporary::new("empty.gguf", b"");
    let magic = Temporary::new("magic.gguf", b"GGML and then some more bytes");
    let mut unknown = GgufWriter::new();
    unknown.string("general.architecture", "perceptron");
    let unknown = Temporary::new("unknown.gguf", &unknown.to_bytes());
    for (path, says) in [
        (cut.path(), "the download is incomplete"),
        (header.path(), "header.gguf"),
        (empty.path(), "empty.gguf"),
        (magic.path(), "magic"),
        (unknown.path(), "perceptron"),
        ("/nowhere/at/all.gguf", "/nowhere/at/all.gguf"),
    ] {
        for command in ["demo", "plan", "generate"] {
            let line = refused(&[command, "--model-file", path]);
            assert!(line.contains(says), "{path}: {line}");
        }
    }
}

#[test]
fn absurd_flags_are_one_line() {
    let file = Temporary::new("flags.gguf", &tiny());
    let most = usize::MAX.to_string();
    for (flag, values) in [
        ("--threads", &["0", "100000", "-1", "two", &most][..]),
        ("--max-batch", &["0", "100000", "x", &most]),
        ("--max-seq-len", &["0", &most, "1.5"]),
        ("--prefill-chunk", &["0", &most]),
        ("--block-tokens", &["0", "7", &most]),
        ("--max-tokens", &["0", "-3"]),
        ("--budget", &["0", "12 parsecs", "99999999999999999GiB", "-1MiB"]),
        ("--temperature", &["-1", "NaN", "hot"]),
        ("--top-p", &["0", "1.5"]),
        ("--lock", &["everything"]),
        ("--prompt", &[""]),
    ] {
        for value in values {
            let line = refused(&["demo", "--model-file", file.path(), &format!("{flag}={value}")]);
            assert!(line.len() > 20, "{flag} {value}: {line}");
        }
    }
    assert!(refused(&["demo", "--model-file", file.path(), "--max-tokns", "3"]).contains("--max-tokens"));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_lengths() {
    let file = Temporary::new("long.gguf", &tiny());
    let prompt = "a".repeat(500);
    let line = refused(&["demo", "--model-file", file.path(), "--raw", "--prompt", &prompt, "--max-seq-len", "64"]);
    assert!(line.contains("64") && line.contains("--max-seq-len"), "{line}");
}

/// The first lever of a refusal, as flags.
fn first_lever(report: &str) -> Vec<String> {
    let line = report.lines().find(|line| line.contains(" -> ")).unwrap_or_else(|| panic!("no lever in {report}"));
    let mut words = line.split_whitespace();
    let name = words.next().unwrap().replace('_', "-");
    let value = line.split(" -> ").nth(1).unwrap().split_whitespace().next().unwrap();
    let unit = if name == "budget" { "MiB" } else { "" };
    vec![format!("--{name}"), format!("{value}{unit}")]
}

fn plan(model: &Path, more: &[String]) -> Output {
    let mut args = vec!["plan".to_owned(), "--model-file".to_owned(), model.display().to_string()];
    args.extend_from_slice(more);
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_plan_that_cannot_fit_is_itemised_and_its_first_lever_is_true() {
    let Some(model) = SMOLLM2.path() else { return };
    // Weights alone are more than 64 MiB; 120 MiB hold them and a shorter context.
    for (budget, first) in [("64MiB", "budget"), ("120MiB", "max")] {
        let refused = plan(&model, &["--budget".into(), budget.into()]);
        assert!(!refused.status.success());
        let report = String::from_utf8(refused.stderr).unwrap();
        println!("{report}");
        for part in ["Weights", "total", "over by", "frees"] {
            assert!(report.contains(part), "no `{part}` in:\n{report}");
        }
        let lever = first_lever(&report);
        assert!(lever[0].contains(first), "{lever:?}");
        let mut more = vec!["--budget".to_owned(), budget.to_owned()];
        more.extend(lever.clone());
        let fits = plan(&model, &more);
        assert!(fits.status.success(), "{lever:?}: {}", String::from_utf8_lossy(&fits.stderr));
    }
}
