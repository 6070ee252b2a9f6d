//! Models for the tests, and the command run on them.

#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memtier_cli::command::{Outcome, run};
use tempfile::TempDir;

#[path = "../../../memtier-model/tests/zoo/mod.rs"]
pub mod zoo;

/// A folder of its own for one test, removed at the end.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// A model as a sparse file.
    pub fn model(&self, name: &str, model: &zoo::Model) -> PathBuf {
        let path = self.join(&format!("{name}.gguf"));
        model.file.write_sparse(&File::create(&path).expect("a file")).expect("a sparse file");
        path
    }
}

/// Runs a command: words, and paths in their places.
pub fn memtier(words: &str, paths: &[&Path]) -> Outcome {
    let mut paths = paths.iter();
    let arguments = words.split_whitespace().map(|word| match word {
        "@" => paths.next().expect("a path for every @").as_os_str().to_owned(),
        // A space within a word.
        word => OsString::from(word.replace('~', " ")),
    });
    run(arguments)
}

pub fn fits(outcome: Outcome) -> String {
    match outcome {
        Outcome::Fits(text) => text,
        other => panic!("{other:?}"),
    }
}

pub fn refused(outcome: Outcome) -> String {
    match outcome {
        Outcome::Refused(text) => text,
        other => panic!("{other:?}"),
    }
}

pub fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Error(text) => text,
        other => panic!("{other:?}"),
    }
}
