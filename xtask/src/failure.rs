//! How a command fails: one line that says what is wrong and what to do, and an exit code.

use std::fmt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

/// A failed command.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// One line; empty when a child has already said what is wrong.
    message: String,
    /// The process exit code, never zero.
    code: u8,
}

impl Failure {
    /// Something went wrong: exit code 1. `message` names the value and the remedy.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// The command line is wrong: exit code 2, as for most tools.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }

    /// Only an exit code: the reason is on the screen already. Zero becomes 1.
    pub fn exit(code: u8) -> Self {
        Self { message: String::new(), code: code.max(1) }
    }

    /// A child's exit code, passed on; a child killed by a signal becomes 128 + signal, as in a shell.
    pub fn child(status: ExitStatus) -> Self {
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal: Option<i32> = None;
        let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1);
        Self::exit(u8::try_from(code).unwrap_or(1))
    }

    /// A file operation that failed, with the remedies for the usual causes.
    pub fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let remedy = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => {
                "; free some space, or set MEMTIER_CACHE to a folder on another disk"
            }
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                "; set MEMTIER_CACHE to a folder that you may write to"
            }
            Kind::NotADirectory | Kind::AlreadyExists => "; a file stands where a folder is needed: move it away",
            _ => "",
        };
        Self::new(format!("cannot {doing} {}: {error}{remedy}", path.display()))
    }

    /// The message, empty for [`Failure::exit`].
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints `error: …` on standard error, or nothing when there is nothing to add.
    pub fn report(&self) {
        if !self.message.is_empty() {
            eprintln!("error: {}", self.message);
        }
    }

    /// For `main`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
