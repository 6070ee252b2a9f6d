//! Tokens per second, as JSON for `cargo xtask bench`.

use memtier_engine::{Sampling, compute::Compute};

use crate::{
    args::Args,
    demo::{open, warm_up},
    drive::{Nobody, Tally, drive},
};

/// Prompts of `--prefill` tokens and `--decode` tokens after each.
pub(crate) fn run<S: Compute>(args: &Args, ops: S::Ops) -> Result<(), Box<dyn std::error::Error>> {
    let most = args.settings.most_tokens();
    if args.prefill > most {
        let prefill = args.prefill;
        return Err(format!("--prefill {prefill}: a sequence holds {most} tokens: raise --max-seq-len").into());
    }
    let mut served = open::<S>(args, ops)?;
    warm_up(&mut served)?;
    let llm = &mut served.llm;
    // Any tokens will do: the work does not depend on them. Small ids are in every vocabulary.
    let prompt: Vec<u32> = (0..args.prefill as u32).map(|index| 300 + index * 7 % 900).collect();
    let mut tally = Tally::default();
    // As many at once as there are slots: one, unless `--max-slots` says otherwise.
    let requests = args.settings.max_slots.unwrap_or(1);
    let admit = |_| llm.admit(&prompt, args.decode.saturating_add(1), Sampling::GREEDY);
    let rows = (0..requests).map(admit).collect::<Result<Vec<_>, _>>()?;
    drive(llm, &mut tally, &mut Nobody)?;
    rows.into_iter().try_for_each(|row| llm.end(row))?;
    let figures = serde_json::json!({
        "prefill_tok_s": Tally::speed(tally.prefill),
        "prefill_tokens": tally.prefill.0,
        "decode_tok_s": Tally::speed(tally.decode),
        "decode_tokens": tally.decode.0,
        "requests": requests,
        "threads": llm.settings().threads,
        "heap_allocations": tally.heap,
    });
    match args.json_to_stdout {
        true => println!("{figures}"),
        false => println!("{figures:#}"),
    }
    Ok(())
}
