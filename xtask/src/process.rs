//! Running other programs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// Runs a program on the caller's terminal and waits for it.
///
/// # Errors
/// It cannot be started. How it ended is the caller's to judge.
pub fn run(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|error| cannot_start(command, &error))
}

/// Runs a program and hands each line of its output, standard error and standard output in the order in which they
/// were written, to `each`. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// It cannot be started or read.
pub fn run_lines(command: &mut Command, each: &mut dyn FnMut(&str)) -> Result<ExitStatus, Failure> {
    let trouble = |error: std::io::Error| Failure::new(format!("cannot read a child's output: {error}"));
    let (reader, writer) = std::io::pipe().map_err(trouble)?;
    let second = writer.try_clone().map_err(trouble)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(second)
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    // The command holds our copies of the write ends; the pipe only ends once they are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(trouble)? > 0 {
        each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    child.wait().map_err(trouble)
}

/// Runs a program for its standard output; its standard error stays on the terminal.
///
/// # Errors
/// It cannot be started, or it fails: the failure then carries only its exit code, as it has spoken for itself.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::child(output.status)),
    }
}

/// The line for a program that does not start.
pub fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    let program = Path::new(command.get_program()).display();
    Failure::new(match error.kind() {
        std::io::ErrorKind::NotFound => format!("cannot start {program}: it is not installed or not on PATH"),
        _ => format!("cannot start {program}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_arrive_in_order_and_the_status_is_kept() {
        let mut lines = Vec::new();
        let script = "echo one; echo two >&2; printf '\\377\\r\\n'; printf last; exit 7";
        let status =
            run_lines(Command::new("sh").args(["-c", script]), &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two", "\u{fffd}", "last"]);
        assert_eq!(status.code(), Some(7));
        assert_eq!(Failure::child(status), Failure::exit(7));
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = run_lines(&mut Command::new("no-such-program-here"), &mut |_| {}).unwrap_err();
        assert!(failure.message().contains("no-such-program-here: it is not installed"), "{failure}");
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_becomes_the_shells_code() {
        let status = run(Command::new("sh").args(["-c", "kill -TERM $$"])).unwrap();
        assert_eq!(Failure::child(status), Failure::exit(143));
    }
}
