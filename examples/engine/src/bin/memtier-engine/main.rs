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

use memtier::{Host, PlanError};
use memtier_engine::{EngineError, Llm, ModelFile, compute::Compute, ops::Cpu};

use args::On;

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
    args.sampling.check()?;
    match args.on {
        On::Cpu => {
            args.settings.check()?;
            run_on::<Host>(args, Cpu::new(args.settings.threads).map_err(EngineError::from)?)
        }
        #[cfg(feature = "cuda")]
        On::Cuda(ordinal) => {
            use memtier_engine::cuda::Gpu;
            args.settings.check()?;
            let gpu = Gpu::open(ordinal, &Gpu::kernels_folder(), args.settings.threads)?;
            run_on::<memtier::Cuda>(args, gpu)
        }
        #[cfg(not(feature = "cuda"))]
        On::Cuda(ordinal) => {
            Err(format!("--device cuda:{ordinal}: this program was built without CUDA: build it with --features cuda")
                .into())
        }
    }
}

fn run_on<S: Compute>(args: &args::Args, ops: S::Ops) -> Result<(), Box<dyn std::error::Error>> {
    match args.command {
        args::Command::Plan => {
            for (name, plan) in Llm::<S>::plan_on(&ops, &ModelFile::open(&args.model)?, &args.settings)? {
                println!("{name}\n{plan}");
            }
            Ok(())
        }
        args::Command::Demo => demo::run::<S>(args, ops),
        args::Command::Generate => demo::generate::<S>(args, ops),
        args::Command::Bench => bench::run::<S>(args, ops),
        args::Command::MeasureAnchors if !S::ON_HOST => {
            Err("measure-anchors: it measures what prompts cost the host: leave out --device".into())
        }
        args::Command::MeasureAnchors => measure::run(args),
    }
}
