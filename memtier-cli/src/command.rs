//! The commands: arguments in, text and verdict out.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;

use memtier::{Bytes, Tokens};
use memtier_model::ModelLayout;
use memtier_model::demands::{LlamaCpp, vllm};

use crate::args::{self, Accounting, Colour, Options, Output, Request};
use crate::device::{CARDS, Platform, taken};
use crate::planned::{self, Planned};
use crate::text::{self, Paint, mib};
use crate::{compare, help, json, picture};

/// What a command ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0, and what goes to standard output.
    Fits(String),
    /// Exit code 1, and what goes to standard output.
    Refused(String),
    /// Exit code 2, and one line for standard error.
    Error(String),
}

/// Runs the command of these arguments, the program's name not among them.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    answer(arguments).unwrap_or_else(Outcome::Error)
}

fn answer(arguments: impl IntoIterator<Item = OsString>) -> Result<Outcome, String> {
    Ok(match args::parse(arguments)? {
        Request::Help(None) => Outcome::Fits(help::GENERAL.to_owned()),
        Request::Help(Some(_)) => Outcome::Fits(help::PLAN.to_owned()),
        Request::Version => Outcome::Fits(format!("memtier {}\n", env!("CARGO_PKG_VERSION"))),
        Request::Devices => Outcome::Fits(devices()),
        Request::Schema => Outcome::Fits(json::SCHEMA.to_owned()),
        Request::Completions(shell) => Outcome::Fits(help::completions(&shell)),
        Request::Plan(options) => plan(&options)?,
        Request::Compare(options) => compare::run(&options)?,
    })
}

fn devices() -> String {
    let mut text = format!("{:<20} {:>8} {:>8} {:>9} {:>9}\n", "card, MiB", "total", "usable", "context", "libraries");
    for card in CARDS {
        let (usable, taken) = (card.usable(Platform::Linux), taken(card.name, Platform::Linux));
        let assumed = if card.usable_mib.is_none() { "~" } else { " " };
        let (context, library) = (taken.context_mib, taken.library_mib);
        let measured = if taken.measured.is_some() { " " } else { "~" };
        let _ = writeln!(
            text,
            "{:<20} {:>8} {usable:>7}{assumed} {context:>8}{measured} {library:>8}~",
            card.name, card.total_mib
        );
    }
    text.push_str(
        "\ntotal: nvidia-smi's memory.total; usable: what a process sees under Linux; ~ assumed, not seen.\n\
         RTX 5090 under Windows or WSL2: context 1680, libraries 3900 (measured with cuBLAS and CUTLASS).\n",
    );
    text
}

pub(crate) fn paint(options: &Options) -> Paint {
    Paint(match options.colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    })
}

fn plan(options: &Options) -> Result<Outcome, String> {
    let model = options.models.first().ok_or("no model given")?;
    let layout = planned::read(options, model)?;
    match options.accounting {
        Accounting::Memtier => {}
        Accounting::LlamaCpp => return llama_cpp(options, &layout),
        Accounting::Vllm => return like_vllm(options, &layout),
    }
    let planned = planned::plan(options, &layout)?;
    let mut said = match &options.output {
        Output::Text => text::plan(&planned, paint(options)),
        Output::Json => json::plan(&planned),
        Output::Html(path) => written(path, &picture::html(&planned), &planned)?,
        Output::Svg(path) => written(path, &picture::svg(&planned), &planned)?,
    };
    if options.output != Output::Json {
        if options.list_layers {
            said.push_str(&text::layers(&layout));
        }
        if options.list_weights {
            said.push_str(&text::weights(&layout));
        }
    }
    Ok(if planned.fits() { Outcome::Fits(said) } else { Outcome::Refused(said) })
}

fn written(path: &Path, text: &str, planned: &Planned<'_>) -> Result<String, String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let verdict = if planned.fits() { "fits" } else { "does not fit" };
    Ok(format!("{verdict}; the picture is in {}\n", path.display()))
}

fn overflow(memtier::Overflow: memtier::Overflow) -> String {
    "a size leaves the range of 64 bits; check --max-batch and --max-seq-len".to_owned()
}

fn llama_cpp(options: &Options, layout: &ModelLayout) -> Result<Outcome, String> {
    let batch = options.max_batch.unwrap_or(1);
    let length = options.max_seq_len.unwrap_or(Tokens::new(4096));
    let mut settings = LlamaCpp::new(length.times(batch).map_err(overflow)?);
    settings.n_seq = batch;
    settings.ubatch = options.prefill_chunk.unwrap_or(settings.ubatch);
    settings.unified = options.unified;
    settings.swa_full = options.swa_full;
    settings.pad = options.cell_padding.unwrap_or(settings.pad);
    if let Some((keys, values)) = options.kv_dtype {
        (settings.keys, settings.values) = (keys, values.unwrap_or(keys));
    }
    let bytes = settings.bytes(layout).map_err(overflow)?;
    let weights = Bytes::new(layout.weight_bytes(|_| true));
    if options.output == Output::Json {
        let value = serde_json::json!({
            "accounting": "llama.cpp",
            "n_ctx": settings.n_ctx.count(),
            "n_seq": batch,
            "model": json::model(layout),
            "weights": weights.count(),
            "kv": {"k": bytes.global.k.count(), "v": bytes.global.v.count()},
            "kv_windows": {"k": bytes.windowed.k.count(), "v": bytes.windowed.v.count()},
            "index": bytes.index.count(),
            "recurrent": {"r": bytes.conv.count(), "s": bytes.state.count()},
            "total": bytes.total().map_err(overflow)?.count(),
        });
        return Ok(Outcome::Fits(format!("{value}\n")));
    }
    let mut said = format!("{}\n", text::headline(layout));
    for warning in &layout.warnings {
        let _ = writeln!(said, "{}", paint(options).bad(&format!("warning: {warning}")));
    }
    let _ = writeln!(
        said,
        "\nllama.cpp: n_ctx {}, {batch} sequences, ubatch {}",
        settings.n_ctx.count(),
        settings.ubatch.count()
    );
    let _ = writeln!(said, "  {:<28} {:>12} MiB", "weights", mib(weights));
    let (keys, values) = (settings.keys, settings.values);
    for (name, part) in [("KV", bytes.global), ("KV, windows", bytes.windowed)] {
        let total = part.total().map_err(overflow)?;
        if !total.is_zero() {
            let (k, v) = (mib(part.k), mib(part.v));
            let _ = writeln!(said, "  {name:<28} {:>12} MiB   K ({keys}) {k}, V ({values}) {v}", mib(total));
        }
    }
    if !bytes.index.is_zero() {
        let _ = writeln!(said, "  {:<28} {:>12} MiB", "index keys", mib(bytes.index));
    }
    let recurrent = bytes.recurrent().map_err(overflow)?;
    if !recurrent.is_zero() {
        let (conv, state) = (mib(bytes.conv), mib(bytes.state));
        let _ =
            writeln!(said, "  {:<28} {:>12} MiB   R (f32) {conv}, S (f32) {state}", "recurrent state", mib(recurrent));
    }
    Ok(Outcome::Fits(said))
}

fn like_vllm(options: &Options, layout: &ModelLayout) -> Result<Outcome, String> {
    let memory = match options.budgets.as_slice() {
        [memory] => *memory,
        _ => return Err("--accounting vllm needs one --vram-budget: the memory that the cache gets".to_owned()),
    };
    let length = options.max_seq_len.unwrap_or(Tokens::new(layout.context_length.unwrap_or(4096)));
    let dtype = options.kv_dtype.map_or(memtier::plan::KvDtype::F16, |(keys, _)| keys);
    let cache = vllm(layout, dtype, memory, length).map_err(overflow)?;
    let tokens = cache.tokens(length).ok_or("the model caches nothing")?;
    let concurrency = cache.concurrency().unwrap_or(0);
    if options.output == Output::Json {
        let value = serde_json::json!({
            "accounting": "vllm",
            "model": json::model(layout),
            "page": cache.page.count(),
            "block_tokens": cache.block_tokens.count(),
            "block": cache.block.count(),
            "blocks": cache.blocks,
            "blocks_per_request": cache.blocks_per_request,
            "tokens": tokens,
            "concurrency_hundredths": concurrency,
        });
        return Ok(Outcome::Fits(format!("{value}\n")));
    }
    Ok(Outcome::Fits(format!(
        "{}\n\nvLLM: {} MiB of cache, requests of {} tokens\n  pages of {} bytes, blocks of {} tokens ({} bytes over all \
         layers of a group)\n  {} blocks, {} a request\n  {tokens} tokens, {}.{:02} requests\n",
        text::headline(layout),
        memory.in_mib(),
        length.count(),
        cache.page.count(),
        cache.block_tokens.count(),
        cache.block.count(),
        cache.blocks,
        cache.blocks_per_request,
        concurrency / 100,
        concurrency % 100,
    )))
}
