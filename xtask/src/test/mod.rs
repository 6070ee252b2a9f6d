//! `cargo xtask test`: every check that needs no GPU, with one count at the end.

mod counts;
mod run;
mod steps;

pub use counts::Counts;

use std::env;

use crate::cli::{self, Check, Command, Flag, Parsed};
use crate::failure::Failure;
use run::{Mode, Outcome};
use steps::{STEPS, Step};

/// The command's face.
pub const COMMAND: Command = Command {
    name: "test",
    about: "runs every check that needs no GPU: format, lints, tests, compile-fail cases, docs, examples, oracle",
    flags: &[
        Flag { name: "list", value: "", check: Check::Any, help: "list the steps and stop" },
        Flag {
            name: "strict",
            value: "",
            check: Check::Any,
            help: "what cannot run here (no network, no Python) is a failure, not a skip; CI=true means the same",
        },
        Flag { name: "fail-fast", value: "", check: Check::Any, help: "stop after the first failing step" },
        Flag { name: "verbose", value: "", check: Check::Any, help: "show all output as it comes (the default in CI)" },
    ],
    words: Some(("STEP…", "only these steps; all when none is named")),
    examples: &[
        ("cargo xtask test", "everything; the last line counts: N passed, N failed, N skipped"),
        ("cargo xtask test ui docs", "two steps"),
        ("cargo xtask test --list", "the steps and what they do"),
    ],
};

/// Runs the command.
///
/// # Errors
/// An unknown step, or exit code 1 when anything failed or no test ran; the closing lines say what.
pub fn run(parsed: Parsed) -> Result<(), Failure> {
    if parsed.has("list") {
        for step in STEPS {
            println!("{:<9} {}", step.name, step.about);
        }
        return Ok(());
    }
    let chosen = choose(&parsed.names())?;
    let ci = env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    let mode = Mode { strict: parsed.has("strict") || ci, verbose: parsed.has("verbose") || ci };
    let mut outcomes = Vec::new();
    let mut resources = run::Resources::default();
    for step in chosen {
        let outcome = run::step(step, &mode, &mut resources);
        println!("{}", outcome.line());
        let stop = outcome.failed() && parsed.has("fail-fast");
        outcomes.push(outcome);
        if stop {
            break;
        }
    }
    conclude(&outcomes)
}

fn choose(names: &[String]) -> Result<Vec<&'static Step>, Failure> {
    for name in names {
        if !STEPS.iter().any(|step| step.name == name) {
            let all = STEPS.iter().map(|step| step.name);
            let hint = cli::did_you_mean(name, "", all.clone());
            let all = all.collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("no step '{name}'{hint}; there are: {all}")));
        }
    }
    // In the table's order, whatever the order on the command line: cheap checks first.
    Ok(STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect())
}

/// Prints the closing summary; its last line is the count of everything.
fn conclude(outcomes: &[Outcome]) -> Result<(), Failure> {
    let mut total = Counts::default();
    println!("\nsummary");
    for outcome in outcomes {
        println!("{}", outcome.line());
        total.add(&outcome.counts);
    }
    let failures: Vec<String> = outcomes.iter().flat_map(Outcome::failures).collect();
    if !failures.is_empty() {
        println!("\nfailures");
        failures.iter().for_each(|failure| println!("  {failure}"));
    }
    let verdict = total.verdict();
    if let Err(why) = &verdict {
        println!("\n{why}");
    }
    println!("\n{}", total.closing_line());
    verdict.map_err(|_| Failure::exit(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_run_in_the_tables_order() {
        let chosen = choose(&["docs".into(), "fmt".into()]).unwrap();
        assert_eq!(chosen.iter().map(|step| step.name).collect::<Vec<_>>(), ["fmt", "docs"]);
        assert_eq!(choose(&[]).unwrap().len(), STEPS.len());
        let message = choose(&["doc".into()]).unwrap_err().message().to_owned();
        assert!(message.starts_with("no step 'doc'; did you mean 'docs'?"), "{message}");
    }
}
