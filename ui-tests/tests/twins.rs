//! Every crime's twin, every attack and every wanted program: compiled together and run, each as one test.

use ui_tests::Outcome;

#[allow(warnings, reason = "twins have what only the crime uses")]
mod programs {
    include!(concat!(env!("OUT_DIR"), "/programs.rs"));
}

fn end_well(outcome: impl Outcome) {
    if let Some(failure) = outcome.failure() {
        panic!("the program ended with {failure}");
    }
}
