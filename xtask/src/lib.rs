//! memtier's developer commands, as a library so that their parts can be tested.
//!
//! | Command | Does |
//! |---|---|
//! | `cargo xtask demo` | fetches a small real model, builds the reference engine, generates text |
//! | `cargo xtask fetch` | only fetches models |
//! | `cargo xtask test` | every check that needs no GPU |
//! | `cargo xtask bench` | tables against peers |
//! | `cargo xtask gpu` | stages the CUDA tests, and runs them where there is a GPU |

pub mod bench;
pub mod build;
pub mod cli;
pub mod demo;
pub mod emulated;
pub mod failure;
pub mod fetch;
pub mod gpu;
pub mod oracle;
pub mod paths;
pub mod process;
pub mod progress;
pub mod test;

use std::ffi::OsString;

use cli::Command;
use failure::Failure;

/// One command: its flags and help, and the function that does it.
type Entry = (&'static Command, fn(cli::Parsed) -> Result<(), Failure>);

const COMMANDS: &[Entry] = &[
    (&demo::COMMAND, demo::run),
    (&fetch::COMMAND, fetch::run),
    (&test::COMMAND, test::run),
    (&bench::COMMAND, bench::run),
    (&gpu::COMMAND, gpu::run),
];

/// Runs the command that `args` (without the program's name) asks for.
///
/// # Errors
/// A [`Failure`] whose text is one line with the remedy, or one that only carries a child's exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        print!("{}", overview());
        return Err(Failure::exit(2));
    };
    let name = first.to_string_lossy();
    if matches!(&*name, "--help" | "-h" | "help") {
        print!("{}", overview());
        return Ok(());
    }
    let Some((command, action)) = COMMANDS.iter().find(|(command, _)| command.name == name) else {
        let names = COMMANDS.iter().map(|(command, _)| command.name);
        let hint = cli::did_you_mean(&name, "", names.clone());
        let all = names.collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("no command '{name}'{hint}; there are: {all}")));
    };
    match command.parse(args)? {
        cli::Outcome::Help => {
            print!("{}", command.help());
            Ok(())
        }
        cli::Outcome::Run(parsed) => action(parsed),
    }
}

fn overview() -> String {
    let mut text = String::from("memtier's developer commands\n\n");
    for (command, _) in COMMANDS {
        text += &format!("  cargo xtask {:<6} {}\n", command.name, command.about);
    }
    text += "\n`cargo xtask COMMAND --help` lists a command's flags, with examples.\n";
    text
}
