//! The reference engine's command. See `--help`.

mod alloc;
mod args;
mod bar;
mod bench;
mod demo;
mod drive;
mod measure;
mod prompt;

use std::process::ExitCode;

use memtier::PlanError;
use memtier_engine::{EngineError, Llm, ModelFile};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn main() -> ExitCode {
    let args = match args::read(std::env::args_os()) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("memtier-engine: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref() {
                // A refused plan is the operator's text: itemised, with what to change.
                Some(EngineError::Plan(PlanError::DoesNotFit(failure))) => eprintln!("{}", failure.report()),
                Some(EngineError::DevicePlan { device, source: PlanError::DoesNotFit(failure) }) => {
                    eprintln!("{device}\n{}", failure.report());
                }
                _ => eprintln!("memtier-engine: {error}"),
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: &args::Args) -> Result<(), Box<dyn std::error::Error>> {
    match args.command {
        args::Command::Plan => {
            for (name, plan) in plan(args)? {
                println!("{name}\n{plan}");
            }
            Ok(())
        }
        args::Command::Demo => demo::run(args),
        args::Command::Generate => demo::generate(args),
        args::Command::Bench => bench::run(args),
        args::Command::MeasureAnchors => measure::run(args),
    }
}

/// The plan of every device.
fn plan(args: &args::Args) -> Result<Vec<(String, memtier::MemoryPlan)>, EngineError> {
    Llm::plan_only(&ModelFile::open(&args.model)?, &args.settings)
}
