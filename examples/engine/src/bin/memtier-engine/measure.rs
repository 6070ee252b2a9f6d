//! What a prompt takes of the host, measured: the anchors of admission's cost model.

use memtier::Bytes;
use memtier_engine::{EngineError, Llm, ModelFile, Sampling, Settings};

use crate::{
    args::Args,
    drive::{Nobody, Tally, drive},
};

/// Prompt lengths that are measured, as far as a sequence goes.
const LENGTHS: [usize; 6] = [32, 128, 512, 1024, 2048, 4096];

/// Resident memory of this process.
fn resident() -> Result<u64, EngineError> {
    let wrong =
        |what: String| EngineError::Busy(format!("/proc/self/smaps_rollup: {what}; anchors are measured on Linux"));
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").map_err(|error| wrong(error.to_string()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| wrong("no line `Anonymous:`".into()))
}

/// What the first prompt of `tokens` tokens makes resident, its KV state left out: that is charged by the token. An engine
/// of its own for each length, because pages that were touched stay.
fn peak(file: &ModelFile, settings: &Settings, tokens: usize) -> Result<u64, EngineError> {
    let mut llm = Llm::open(file, settings, &mut |_| ())?;
    // Small ids are in every vocabulary.
    let prompt: Vec<u32> = (0..tokens as u32).map(|index| index * 7 % 200).collect();
    let before = resident()?;
    let row = llm.admit(&prompt, 1, Sampling::GREEDY)?;
    drive(&mut llm, &mut Tally::default(), &mut Nobody)?;
    let after = resident()?;
    llm.end(row)?;
    let kv = llm.kv_per_token().count().saturating_mul(tokens as u64);
    Ok(after.saturating_sub(before).saturating_sub(kv))
}

/// Prints the file that `--cost-anchors` reads.
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let file = ModelFile::open(&args.model)?;
    let name = args.model.file_name().map(|name| name.display().to_string()).unwrap_or_default();
    let Settings { threads, prefill_chunk, max_seq_len, .. } = args.settings;
    println!("# What a prompt makes resident on the host beside its KV state, for --cost-anchors.");
    println!("# {name}, {threads} threads, chunks of {prefill_chunk} tokens, sequences of up to {max_seq_len}");
    println!("# tokens  peak");
    let mut highest = 0;
    for tokens in LENGTHS.into_iter().filter(|tokens| *tokens <= max_seq_len) {
        // A longer prompt that seems to cost less is noise of the measurement: the larger one stays.
        highest = peak(&file, &args.settings, tokens)?.max(highest);
        let kib = Bytes::new(highest).count().div_ceil(1 << 10);
        println!("{tokens:>8}  {kib}KiB");
    }
    Ok(())
}
