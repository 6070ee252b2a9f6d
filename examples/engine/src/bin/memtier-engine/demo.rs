//! The demo: load, answer, report.

use std::{
    io::{Write, stdout},
    time::{Duration, Instant},
};

use memtier::MemoryReport;
use memtier_engine::{
    EngineError, Llm, ModelFile, Outcome, PartReport, Progress, RequestId, Row, Sampling, Token,
    compute::Compute,
    policy::process_watcher,
    tokenizer::{Decoder, Tokenizer},
};

use crate::{
    args::Args,
    bar::Bar,
    drive::{Listener, Nobody, Tally, drive},
    prompt,
};

/// What is asked when nobody asks anything.
const PROMPT: &str = "Write one short paragraph about why the sea is salty.";
/// Prompts longer than this get a progress bar.
const LONG: u64 = 1024;

/// A served model with its tokenizer, and how long the load took.
pub(crate) struct Served<S: Compute> {
    pub(crate) llm: Llm<S>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) load: Duration,
}

/// Opens, plans and loads.
pub(crate) fn open<S: Compute>(args: &Args, ops: S::Ops) -> Result<Served<S>, EngineError> {
    let file = ModelFile::open(&args.model)?;
    // Before the tokenizer: of a model that is not known here, that is what its user must hear.
    memtier_model::ModelDescription::from_gguf(file.gguf())?;
    let tokenizer = Tokenizer::from_metadata(file.gguf().metadata())?;
    let start = Instant::now();
    let mut bar = Bar::new("loading");
    let watcher = process_watcher(&args.settings.pressure)?;
    let progress = &mut |Progress { done, total }| bar.show(done, total);
    let mut llm = Llm::open_on(ops, &file, &args.settings, Some(&watcher), progress)?;
    bar.done();
    for loaded in llm.load_prefixes()? {
        eprintln!("prefix store: {} blocks loaded, {} left out", loaded.blocks, loaded.left_out);
        if loaded.states + loaded.states_left_out > 0 {
            eprintln!("prefix store: {} windows loaded, {} left out", loaded.states, loaded.states_left_out);
        }
        if let Some(tear) = loaded.tear {
            eprintln!("prefix store: {tear}");
        }
    }
    Ok(Served { llm, tokenizer, load: start.elapsed() })
}

/// Touches everything once, so that what follows is steady.
pub(crate) fn warm_up<S: Compute>(served: &mut Served<S>) -> Result<(), EngineError> {
    let Served { llm, tokenizer, .. } = served;
    let row = llm.admit(&tokenizer.encode_prompt("warm up"), 2, Sampling::GREEDY)?;
    drive(llm, &mut Tally::default(), &mut Nobody)?;
    llm.end(row)
}

/// One prompt and what became of it.
struct Reply<'t> {
    id: RequestId,
    row: Option<Row>,
    decoder: Decoder<'t>,
    text: String,
    ended: bool,
    failed: Option<EngineError>,
}

/// Everybody who asked something. Prints the first answer as it comes.
struct Audience<'t> {
    tokenizer: &'t Tokenizer,
    replies: Vec<Reply<'t>>,
    bar: Option<Bar>,
    prefill: (u64, u64),
}

impl<S: Compute> Listener<S> for Audience<'_> {
    fn started(&mut self, request: RequestId, outcome: Outcome) {
        let Some(reply) = self.replies.iter_mut().find(|reply| reply.id == request) else { return };
        match outcome {
            Outcome::Started(row) => reply.row = Some(row),
            Outcome::Refused(refusal) => reply.failed = Some(refusal.into()),
            Outcome::Failed(error) => reply.failed = Some(error),
        }
    }

    fn tokens(&mut self, llm: &mut Llm<S>, fresh: &[Token]) -> Result<(), EngineError> {
        for token in fresh {
            let at = self.replies.iter().position(|reply| reply.row == Some(token.row) && !reply.ended);
            let Some(index) = at else { continue };
            let reply = &mut self.replies[index];
            let end = self.tokenizer.is_end_of_generation(token.token);
            let piece = if end { reply.decoder.finish() } else { reply.decoder.push(token.token) };
            reply.text.push_str(&piece);
            if index == 0 {
                print!("{piece}");
                let _ = stdout().flush();
            }
            if end || token.last {
                reply.text.push_str(&reply.decoder.finish());
                reply.ended = true;
                llm.stop(token.row)?;
                // Its blocks stay for the report, unless somebody waits for its slot.
                if llm.waiting() > 0 {
                    llm.end(token.row)?;
                    reply.row = None;
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, tokens: usize) {
        let (done, total) = &mut self.prefill;
        *done += tokens as u64;
        if let Some(bar) = &mut self.bar {
            bar.show((*done).min(*total), *total);
            if *done >= *total {
                bar.done();
            }
        }
    }
}

/// What one device was planned for, and what it held while it served.
struct OnDevice {
    name: String,
    planned: u64,
    report: MemoryReport,
}

impl From<PartReport<'_>> for OnDevice {
    fn from(part: PartReport<'_>) -> Self {
        let PartReport { name, plan, report, .. } = part;
        OnDevice { name: name.to_owned(), planned: plan.total().count(), report }
    }
}

impl OnDevice {
    fn figures(&self) -> serde_json::Value {
        let (planned, live) = (self.planned, self.report.device.live.count());
        serde_json::json!({ "name": self.name, "planned_bytes": planned, "live_bytes": live })
    }
}

/// Answers all prompts, as many at once as there are slots.
fn answer<S: Compute>(
    args: &Args,
    served: &mut Served<S>,
    prompts: &[String],
    tally: &mut Tally,
) -> Result<(Vec<Result<String, EngineError>>, Vec<OnDevice>), EngineError> {
    let Served { llm, tokenizer, .. } = served;
    let tokenizer = &*tokenizer;
    let mut audience = Audience { tokenizer, replies: Vec::new(), bar: None, prefill: (0, 0) };
    for prompt in prompts {
        let tokens = prompt::tokens(tokenizer, prompt, args.raw)?;
        audience.prefill.1 += tokens.len() as u64;
        let decoder = tokenizer.decoder();
        let mut reply =
            Reply { id: RequestId::MAX, row: None, decoder, text: String::new(), ended: false, failed: None };
        match llm.submit(tokens, args.max_tokens, args.sampling, args.cut_to) {
            Ok(id) => reply.id = id,
            // One that was refused keeps nobody else from an answer.
            Err(error @ EngineError::Refused(_)) => reply.failed = Some(error),
            Err(error) => return Err(error),
        }
        audience.replies.push(reply);
    }
    audience.bar = (audience.prefill.1 > LONG).then(|| Bar::new("prompt"));
    drive(llm, tally, &mut audience)?;
    println!();
    // While the requests still hold their blocks.
    let reports = llm.parts().into_iter().map(OnDevice::from).collect();
    let replies = audience.replies;
    replies.iter().filter_map(|reply| reply.row).try_for_each(|row| llm.end(row))?;
    Ok((replies.into_iter().map(|reply| reply.failed.map_or(Ok(reply.text), Err)).collect(), reports))
}

fn prompts(args: &Args) -> Vec<String> {
    if args.prompts.is_empty() { vec![PROMPT.to_owned()] } else { args.prompts.clone() }
}

/// The answers only.
pub(crate) fn generate<S: Compute>(args: &Args, ops: S::Ops) -> Result<(), Box<dyn std::error::Error>> {
    let mut served = open::<S>(args, ops)?;
    let (answers, _) = answer(args, &mut served, &prompts(args), &mut Tally::default())?;
    answers.iter().skip(1).for_each(|answer| println!("---\n{}", answer.as_deref().unwrap_or_default()));
    let decisions = served.llm.decisions();
    if !decisions.is_empty() {
        eprintln!("Memory policy\n{decisions}");
    }
    save(&mut served.llm)?;
    first_error(answers)
}

/// Answer, plan, memory report, and how much was allocated while serving.
pub(crate) fn run<S: Compute>(args: &Args, ops: S::Ops) -> Result<(), Box<dyn std::error::Error>> {
    let mut served = open::<S>(args, ops)?;
    println!("{}", args.model.display());
    println!("\nPlan");
    served.llm.parts().iter().for_each(|part| println!("{}\n{}", part.name, part.plan));
    println!();
    warm_up(&mut served)?;
    match served.llm.measured_start() {
        Ok(Some(reserve)) => println!("{reserve}\n"),
        Ok(None) => {}
        // It is for the next start: this one serves all the same.
        Err(EngineError::Reserve(error)) => eprintln!("warning: what this start measured is not kept: {error}"),
        Err(error) => return Err(error.into()),
    }
    let commits_of = |reports: &[OnDevice]| reports.iter().map(|on| on.report.device.planned_commits).sum::<u64>();
    let library = served.llm.library_allocations();
    let before = commits_of(&served.llm.parts().into_iter().map(OnDevice::from).collect::<Vec<_>>());
    let prompts = prompts(args);
    let mut tally = Tally::default();
    println!("> {}\n", prompts[0]);
    let (answers, reports) = answer(args, &mut served, &prompts, &mut tally)?;
    for (prompt, answer) in prompts.iter().zip(&answers).skip(1) {
        println!("\n> {prompt}\n\n{}", answer.as_deref().unwrap_or_default());
    }
    let sum = |count: fn(&MemoryReport) -> u64| reports.iter().map(|on| count(&on.report)).sum::<u64>();
    let device = sum(MemoryReport::unplanned_acquisitions);
    let pinned = sum(|report| report.device.pinned_acquisitions);
    let commits = commits_of(&reports) - before;
    let (prefill, decode) = (Tally::speed(tally.prefill), Tally::speed(tally.decode));
    println!("\nMemory");
    reports.iter().for_each(|on| println!("{}\n{}\n", on.name, on.report));
    if !served.llm.decisions().is_empty() {
        println!("Memory policy\n{}\n", served.llm.decisions());
    }
    println!("load {:.2} s, {} threads", served.load.as_secs_f64(), served.llm.settings().threads);
    println!(
        "prefill {} tokens at {prefill:.1} tok/s, decode {} tokens at {decode:.1} tok/s",
        tally.prefill.0, tally.decode.0
    );
    if let Some(libraries) = served.llm.libraries() {
        println!("{libraries}");
    }
    if commits > 0 {
        println!("planned commits while serving: {commits}");
    }
    let library = library_since(library, served.llm.library_allocations());
    let by_library = library.as_ref().map_or(String::new(), |count| match count {
        Ok(count) => format!(", library {count}"),
        Err(_) => ", library not counted".to_owned(),
    });
    println!("allocations while serving: device {device}, pinned {pinned}{by_library}, host heap {}", tally.heap);
    if let Some(Err(why)) = &library {
        println!("{why}");
    }
    if let Some(path) = &args.json {
        let figures = serde_json::json!({
            "model": args.model.display().to_string(),
            "threads": served.llm.settings().threads,
            "libraries": served.llm.libraries(),
            "answers": answers.iter().map(|answer| answer.as_deref().unwrap_or_default()).collect::<Vec<_>>(),
            "load_s": served.load.as_secs_f64(),
            "prefill_tokens": tally.prefill.0,
            "prefill_tok_s": prefill,
            "decode_tokens": tally.decode.0,
            "decode_tok_s": decode,
            "planned_bytes": reports.iter().map(|on| on.planned).sum::<u64>(),
            "live_bytes": sum(|report| report.device.live.count()),
            "devices": reports.iter().map(OnDevice::figures).collect::<Vec<_>>(),
            "allocations_while_serving": {
                "device": device, "pinned": pinned, "library": library.and_then(Result::ok), "host_heap": tally.heap,
            },
            "planned_commits_while_serving": commits,
            "decisions": served.llm.decisions().list().iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{figures:#}\n"))
            .map_err(|error| format!("--json {}: cannot write: {error}", path.display()))?;
    }
    save(&mut served.llm)?;
    first_error(answers)
}

/// What libraries asked a driver for between two looks.
fn library_since(before: Option<Result<u64, String>>, now: Option<Result<u64, String>>) -> Option<Result<u64, String>> {
    let before = before?;
    now.map(|now| now.and_then(|now| before.map(|before| now - before)))
}

/// Saves what is cached, where the settings say.
fn save<S: Compute>(llm: &mut Llm<S>) -> Result<(), EngineError> {
    if let Some(blocks) = llm.save_prefixes()? {
        eprintln!("prefix store: {blocks} saved");
    }
    Ok(())
}

/// Somebody got no answer: the command fails, after everything was printed.
fn first_error(answers: Vec<Result<String, EngineError>>) -> Result<(), Box<dyn std::error::Error>> {
    match answers.into_iter().find_map(Result::err) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
