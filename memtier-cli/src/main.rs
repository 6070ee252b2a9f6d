//! `memtier`: see `memtier --help`.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use memtier_cli::command::{Outcome, run};

fn main() -> ExitCode {
    let outcome = run(std::env::args_os().skip(1));
    let written = match &outcome {
        Outcome::Fits(text) | Outcome::Refused(text) => io::stdout().lock().write_all(text.as_bytes()),
        Outcome::Error(text) => io::stderr().lock().write_all(format!("memtier: {text}\n").as_bytes()),
    };
    match (written, outcome) {
        // Whoever reads us has read enough.
        (Err(error), _) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        (Err(_), _) | (Ok(()), Outcome::Error(_)) => ExitCode::from(2),
        (Ok(()), Outcome::Fits(_)) => ExitCode::SUCCESS,
        (Ok(()), Outcome::Refused(_)) => ExitCode::from(1),
    }
}
