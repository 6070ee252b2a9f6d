//! What memtier's core costs, beside plain alternatives: `cargo run --release -p memtier-bench [WORD…]`.
//!
//! One line of JSON per measurement on standard output, nanoseconds per operation. `cargo xtask bench core` turns them
//! into a table. Words select the benches whose name contains one of them.

mod arena;
mod mutex_pool;
mod plan;
mod pool;
mod timing;

use timing::Bench;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |bench: &Bench| words.is_empty() || words.iter().any(|word| bench.what.contains(word.as_str()));
    let benches = [
        pool::one_block(),
        pool::many_blocks(),
        pool::shared_block(),
        arena::take(),
        arena::scratch(),
        plan::accepted(),
        plan::refused(),
    ];
    for bench in benches.into_iter().filter(wanted) {
        for line in bench.run() {
            println!("{line}");
        }
    }
}
