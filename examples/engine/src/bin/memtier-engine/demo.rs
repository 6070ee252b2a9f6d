//! The demo: load, answer, report.

use std::{
    io::{Write, stdout},
    time::{Duration, Instant},
};

use memtier::MemoryReport;
use memtier_engine::{EngineError, Llm, ModelFile, Progress, Sampling, tokenizer::Tokenizer};

use crate::{alloc, args::Args, bar::Bar, prompt};

/// What is asked when nobody asks anything.
const PROMPT: &str = "Write one short paragraph about why the sea is salty.";
/// Prompts longer than this get a progress bar.
const LONG: usize = 1024;

/// A served model with its tokenizer, and how long the load took.
pub(crate) struct Served {
    pub(crate) llm: Llm,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) load: Duration,
}

/// Opens, plans and loads.
pub(crate) fn open(args: &Args) -> Result<Served, EngineError> {
    let file = ModelFile::open(&args.model)?;
    // Before the tokenizer: of a model that is not known here, that is what its user must hear.
    memtier_model::ModelDescription::from_gguf(file.gguf())?;
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata())?;
    let start = Instant::now();
    let mut bar = Bar::new("loading");
    let llm = Llm::open(&file, &args.settings, &mut |Progress { done, total }| bar.show(done, total))?;
    bar.done();
    Ok(Served { llm, tokenizer, load: start.elapsed() })
}

/// Passes and heap allocations of a stretch of serving.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) prefill: (u64, Duration),
    pub(crate) decode: (u64, Duration),
    pub(crate) heap: u64,
}

impl Tally {
    pub(crate) fn speed((tokens, time): (u64, Duration)) -> f64 {
        if tokens == 0 { 0.0 } else { tokens as f64 / time.as_secs_f64() }
    }
}

/// Runs passes until nothing is pending. The heap is counted over whole passes, from their first instruction to their last.
pub(crate) fn drive(
    llm: &mut Llm,
    tally: &mut Tally,
    mut on_token: impl FnMut(&mut Llm, &[memtier_engine::Token]) -> Result<(), EngineError>,
    mut on_pass: impl FnMut(usize),
) -> Result<(), EngineError> {
    let mut fresh = Vec::with_capacity(llm.settings().max_batch);
    loop {
        fresh.clear();
        let (heap, start) = (alloc::count(), Instant::now());
        let tokens = llm.step(|token| fresh.push(token))?;
        let (time, heap) = (start.elapsed(), alloc::count() - heap);
        if tokens == 0 {
            return Ok(());
        }
        tally.heap += heap;
        // A pass with more tokens than answers has prompt in it.
        let part = if tokens > fresh.len() { &mut tally.prefill } else { &mut tally.decode };
        part.0 += tokens as u64;
        part.1 += time;
        on_pass(tokens);
        on_token(llm, &fresh)?;
    }
}

/// Touches everything once, so that what follows is steady.
pub(crate) fn warm_up(served: &mut Served) -> Result<(), EngineError> {
    let Served { llm, tokenizer, .. } = served;
    let row = llm.admit(&tokenizer.encode_prompt("warm up"), 2, Sampling::GREEDY)?;
    drive(llm, &mut Tally::default(), |_, _| Ok(()), |_| ())?;
    llm.end(row)
}

/// Answers all prompts at once. Prints the first answer as it comes, the others after.
fn answer(
    args: &Args,
    served: &mut Served,
    prompts: &[String],
    tally: &mut Tally,
) -> Result<(Vec<String>, MemoryReport), EngineError> {
    let Served { llm, tokenizer, .. } = served;
    let mut rows = Vec::new();
    let mut total = 0;
    for prompt in prompts {
        let tokens = prompt::tokens(tokenizer, prompt, args.raw)?;
        total += tokens.len();
        let row = llm.admit(&tokens, args.max_tokens, args.sampling)?;
        rows.push((row, tokenizer.decoder(), String::new(), false));
    }
    let mut bar = (total > LONG).then(|| Bar::new("prompt"));
    let mut done = 0;
    let first = rows.first().map(|(row, ..)| *row);
    drive(
        llm,
        tally,
        |llm, fresh| {
            for token in fresh {
                let Some((row, decoder, text, ended)) = rows.iter_mut().find(|(row, ..)| *row == token.row) else {
                    continue;
                };
                if *ended {
                    continue;
                }
                let end = tokenizer.is_end_of_generation(token.token);
                let piece = if end { decoder.finish() } else { decoder.push(token.token) };
                text.push_str(&piece);
                if Some(*row) == first {
                    print!("{piece}");
                    let _ = stdout().flush();
                }
                if end || token.last {
                    text.push_str(&decoder.finish());
                    *ended = true;
                    llm.stop(*row)?;
                }
            }
            Ok(())
        },
        |tokens| {
            done += tokens as u64;
            if let Some(bar) = &mut bar {
                bar.show(done.min(total as u64), total as u64);
                if done >= total as u64 {
                    bar.done();
                }
            }
        },
    )?;
    println!();
    // While the requests still hold their blocks.
    let report = llm.memory_report();
    rows.iter().try_for_each(|(row, ..)| llm.end(*row))?;
    Ok((rows.into_iter().map(|(_, _, text, _)| text).collect(), report))
}

fn prompts(args: &Args) -> Vec<String> {
    if args.prompts.is_empty() { vec![PROMPT.to_owned()] } else { args.prompts.clone() }
}

/// The answers only.
pub(crate) fn generate(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut served = open(args)?;
    let (answers, _) = answer(args, &mut served, &prompts(args), &mut Tally::default())?;
    answers.iter().skip(1).for_each(|answer| println!("---\n{answer}"));
    Ok(())
}

/// Answer, plan, memory report, and how much was allocated while serving.
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut served = open(args)?;
    println!("{}", args.model.display());
    println!("\nPlan\n{}\n", served.llm.memory_plan());
    warm_up(&mut served)?;
    let before = served.llm.device().report();
    let prompts = prompts(args);
    let mut tally = Tally::default();
    println!("> {}\n", prompts[0]);
    let (answers, report) = answer(args, &mut served, &prompts, &mut tally)?;
    for (prompt, answer) in prompts.iter().zip(&answers).skip(1) {
        println!("\n> {prompt}\n\n{answer}");
    }
    let (device, pinned) = (report.unplanned_acquisitions(), report.device.pinned_acquisitions);
    let commits = report.device.planned_commits - before.planned_commits;
    let (prefill, decode) = (Tally::speed(tally.prefill), Tally::speed(tally.decode));
    println!("\nMemory\n{report}\n");
    println!("load {:.2} s, {} threads", served.load.as_secs_f64(), served.llm.settings().threads);
    println!(
        "prefill {} tokens at {prefill:.1} tok/s, decode {} tokens at {decode:.1} tok/s",
        tally.prefill.0, tally.decode.0
    );
    if commits > 0 {
        println!("planned commits while serving: {commits}");
    }
    println!("allocations while serving: device {device}, pinned {pinned}, host heap {}", tally.heap);
    if let Some(path) = &args.json {
        let figures = serde_json::json!({
            "model": args.model.display().to_string(),
            "threads": served.llm.settings().threads,
            "answers": answers,
            "load_s": served.load.as_secs_f64(),
            "prefill_tokens": tally.prefill.0,
            "prefill_tok_s": prefill,
            "decode_tokens": tally.decode.0,
            "decode_tok_s": decode,
            "planned_bytes": served.llm.memory_plan().total().count(),
            "live_bytes": report.device.live.count(),
            "allocations_while_serving": { "device": device, "pinned": pinned, "host_heap": tally.heap },
            "planned_commits_while_serving": commits,
        });
        std::fs::write(path, format!("{figures:#}\n"))
            .map_err(|error| format!("--json {}: cannot write: {error}", path.display()))?;
    }
    Ok(())
}
