//! Tokens per second, as JSON for `cargo xtask bench`.

use memtier_engine::Sampling;

use crate::{
    args::Args,
    demo::{open, warm_up},
    drive::{Nobody, Tally, drive},
};

/// One prompt of `--prefill` tokens and `--decode` tokens after it.
pub(crate) fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut served = open(args)?;
    warm_up(&mut served)?;
    let llm = &mut served.llm;
    // Any tokens will do: the work does not depend on them. Small ids are in every vocabulary.
    let prompt: Vec<u32> = (0..args.prefill as u32).map(|index| 300 + index * 7 % 900).collect();
    let mut tally = Tally::default();
    let row = llm.admit(&prompt, args.decode + 1, Sampling::GREEDY)?;
    drive(llm, &mut tally, &mut Nobody)?;
    llm.end(row)?;
    let figures = serde_json::json!({
        "prefill_tok_s": Tally::speed(tally.prefill),
        "prefill_tokens": tally.prefill.0,
        "decode_tok_s": Tally::speed(tally.decode),
        "decode_tokens": tally.decode.0,
        "threads": llm.settings().threads,
        "heap_allocations": tally.heap,
    });
    match args.json_to_stdout {
        true => println!("{figures}"),
        false => println!("{figures:#}"),
    }
    Ok(())
}
