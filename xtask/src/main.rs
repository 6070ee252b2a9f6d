//! `cargo xtask`: memtier's developer commands. See `cargo xtask --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match xtask::run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
