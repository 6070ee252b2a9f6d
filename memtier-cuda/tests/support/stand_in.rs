//! A stand-in for cuBLASLt that refuses, compiled when a test asks for it. The engine's tests take it from here.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// The library's file, which goes with this name.
pub(crate) struct Refusing(TempDir);

impl Refusing {
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("refusing.so")
    }
}

/// The library, or `None` with a sentence where there is no compiler.
pub(crate) fn refusing() -> Option<Refusing> {
    let library = Refusing(tempfile::tempdir().unwrap());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let mut command = Command::new(rustc);
    command
        .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "refusing", "-o"])
        .arg(library.path())
        .arg("-");
    let mut compiler = match command.stdin(Stdio::piped()).spawn() {
        Ok(compiler) => compiler,
        Err(error) => {
            println!("skipped: no compiler for a library that refuses ({error})");
            return None;
        }
    };
    compiler.stdin.take().unwrap().write_all(include_str!("refusing.rs").as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    Some(library)
}
