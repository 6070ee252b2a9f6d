//! What memtier's core costs, beside plain alternatives: `cargo run --release -p memtier-bench [WORD…]`.
//!
//! One line of JSON per measurement on standard output, nanoseconds per operation. `cargo xtask bench core` turns them
//! into a table. Words select the benches whose name contains one of them.

mod arena;
mod common_cache;
mod fingerprint;
mod mutex_pool;
mod plan;
mod pool;
mod prefix;
mod prefix_bytes;
mod prefix_engine;
mod pressure;
mod serving;
mod timing;

use std::error::Error;

use timing::Bench;

/// One bench. Setting it up may fail: some measure a serving engine.
type SetUp = fn() -> Result<Bench, Box<dyn Error>>;

const BENCHES: &[SetUp] = &[
    pool::one_block,
    pool::one_of_a_request,
    pool::many_blocks,
    pool::shared_block,
    arena::take,
    arena::scratch,
    fingerprint::prompt,
    plan::accepted,
    plan::refused,
    pressure::snapshot,
    pressure::step,
];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |bench: &Bench| words.is_empty() || words.iter().any(|word| bench.what.contains(word.as_str()));
    for set_up in BENCHES.iter().chain(prefix::BENCHES) {
        let bench = set_up()?;
        if wanted(&bench) {
            bench.run().iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}
