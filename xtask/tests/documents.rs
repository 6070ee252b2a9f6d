//! What the documents show is what is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a Markdown text in one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == format!("```{language}") {
            found.push(lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n"));
        }
    }
    found
}

/// A text without the indentation that all of its lines share.
fn dedented(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = text.lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    text.lines().map(|line| line.get(common..).unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Whether `block` is a run of whole lines of `source`, indented differently perhaps.
fn is_part_of(block: &str, source: &str) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let block = dedented(block);
    lines.windows(block.lines().count().max(1)).any(|window| dedented(&window.join("\n")) == block)
}

#[test]
fn the_readmes_code_comes_from_examples_that_run() {
    let examples: Vec<String> = fs::read_dir(root().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for block in blocks(&read("README.md"), "rust") {
        assert!(examples.iter().any(|example| is_part_of(&block, example)), "in no examples/*.rs:\n{block}");
    }
}

#[test]
fn the_readmes_error_messages_are_what_rustc_says() {
    let cases = root().join("ui-tests/tests/ui");
    let folders = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let snapshots: Vec<String> = folders
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "stderr"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for block in blocks(&read("README.md"), "text") {
        assert!(snapshots.iter().any(|snapshot| is_part_of(&block, snapshot)), "in no snapshot:\n{block}");
    }
}

#[test]
fn the_readmes_first_two_commands_are_demo_and_test_and_ci_runs_the_second() {
    let commands = blocks(&read("README.md"), "sh");
    assert_eq!(commands[..2], ["cargo xtask demo", "cargo xtask test"]);
    assert!(read(".ci/run").lines().any(|line| line == commands[1]), ".ci/run does not call `{}`", commands[1]);
}

#[test]
fn every_folder_that_the_readme_names_exists() {
    let readme = read("README.md");
    let layout = readme.split("## Layout").nth(1).unwrap().split("\n## ").next().unwrap();
    let folders: Vec<&str> = layout.split('`').filter(|word| word.ends_with('/')).collect();
    assert!(folders.len() > 5, "{folders:?}");
    for folder in folders {
        assert!(root().join(folder).is_dir(), "{folder}");
    }
}

#[test]
fn a_block_is_found_whatever_its_indentation_and_only_as_whole_lines() {
    let source = "fn main() {\n    let a = 1;\n\n    if a > 0 {\n        b();\n    }\n}\n";
    assert!(is_part_of("let a = 1;\n\nif a > 0 {\n    b();\n}", source));
    assert!(!is_part_of("let a = 1;\nif a > 0 {", source));
    assert!(!is_part_of("a = 1;", source));
}
