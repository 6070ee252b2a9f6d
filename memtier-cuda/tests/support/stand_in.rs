//! A stand-in for cuBLASLt that refuses, compiled when a test asks for it. The engine's tests take it from here.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The library's file, or `None` with a sentence where there is no compiler.
pub(crate) fn refusing() -> Option<PathBuf> {
    let path = std::env::temp_dir().join(format!("memtier-refusing-{}.so", std::process::id()));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "refusing", "-o"]).arg(&path).arg("-");
    let mut compiler = match command.stdin(Stdio::piped()).spawn() {
        Ok(compiler) => compiler,
        Err(error) => {
            println!("skipped: no compiler for a library that refuses ({error})");
            return None;
        }
    };
    compiler.stdin.take().unwrap().write_all(include_str!("refusing.rs").as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    Some(path)
}
