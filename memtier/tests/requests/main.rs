//! What requests do with blocks, in random order, beside a reference that keeps everything by name and counts nothing.
//!
//! Each block's content is a function of all tokens up to it, so a block that was handed out twice, reached through a stale name, or
//! written while shared shows in what is read back.
//!
//! `MEMTIER_OPERATIONS=1000000 cargo test --release -p memtier --test requests` runs as many operations; seeds of failures are
//! kept in `proptest-regressions`.

mod machine;
mod reference;
mod tally;
mod tiers;

use std::sync::Mutex;

use machine::{Machine, Op};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use tally::Tally;

/// Operations of one history.
const HISTORY: usize = 500;

/// How many operations the random histories have together.
fn operations() -> usize {
    std::env::var("MEMTIER_OPERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(60_000)
}

fn op() -> impl Strategy<Value = Op> {
    (0..128u8, any::<[u16; 4]>()).prop_map(|(kind, numbers)| Op { kind, numbers })
}

#[test]
fn random_histories_agree_with_the_reference() {
    let config = ProptestConfig {
        cases: operations().div_ceil(HISTORY) as u32,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    };
    let tally = Mutex::new(Tally::default());
    proptest!(config, |(forks in any::<bool>(), ops in proptest::collection::vec(op(), 1..2 * HISTORY))| {
        let mut machine = Machine::new(forks);
        for op in ops {
            machine.apply(op);
        }
        tally.lock().unwrap().add(&machine.finish());
    });
    let mut tally = tally.into_inner().unwrap();
    println!("{tally:?}");
    if operations() >= 60_000 {
        tally.check();
    }
}
