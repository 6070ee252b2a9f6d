//! Every crime is refused, with the words that are kept beside it; every row of the table of illegal states has one.

mod runner;

use std::{collections::BTreeSet, time::Instant};

use runner::{
    case::{Case, cases},
    compiler::Compiler,
    documents, in_parallel, sentences, snapshot,
};

/// The rows of the design's table of illegal states.
const ROWS: &str = "abcdefghijklmnopqrstu";

fn chosen() -> Vec<Case> {
    let words = std::env::var("MEMTIER_UI").unwrap_or_default();
    cases().into_iter().filter(|case| case.name.contains(&words)).collect()
}

#[test]
fn every_crime_is_refused_in_the_words_that_are_kept() {
    let (cases, compiler, start) = (chosen(), Compiler::find(), Instant::now());
    let failures: Vec<_> = in_parallel(&cases, |case| check(case, &compiler).err()).into_iter().flatten().collect();
    println!("{} crimes in {:.1} s", cases.len(), start.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} of {} fail:\n\n{}", failures.len(), cases.len(), failures.join("\n\n"));
}

fn check(case: &Case, compiler: &Compiler) -> Result<(), String> {
    let verdict = compiler.crime(case);
    let message = snapshot::normal(&verdict.stderr, case);
    if std::env::var_os("MEMTIER_UI_SHOW").is_some() {
        println!("=== {}\n{message}", case.name);
    }
    let fail = |why: String| Err(format!("{}: {why}", case.name));
    if !verdict.refused {
        return fail("the crime compiles".into());
    }
    let first = message.lines().next().unwrap_or_default();
    let code = if case.error == "macro" { "error: ".to_owned() } else { format!("error[{}]: ", case.error) };
    if !first.starts_with(&code) {
        return fail(format!("the first error is not {}:\n{message}", case.error));
    }
    // Headers leave out where a name is from.
    let error = message.split("\n\n").next().unwrap_or_default().replace("memtier::", "").replace("ui_tests::", "");
    if !error.contains(&case.says) {
        return fail(format!("the first error does not say {:?}:\n{message}", case.says));
    }
    snapshot::compare(case, &message).or_else(fail)
}

#[test]
fn every_message_is_ours_or_explained_in_the_error_index() {
    let (core, macros, index) = (sentences::of_the_core(), sentences::of_the_macros(), documents::index());
    let ours = |line: &str| match line.split_once(": ") {
        Some(("error", said)) => macros.iter().any(|sentence| sentence.is_in(said)),
        Some(("error[E0277]", said)) => core.iter().any(|sentence| sentence.is_in(said)),
        // Constants that stop the compiler.
        Some(("error[E0080]", said)) => core.iter().chain(&macros).any(|sentence| sentence.is_in(said)),
        _ => false,
    };
    let mut wrong = Vec::new();
    for case in cases() {
        let message = std::fs::read_to_string(case.snapshot()).unwrap_or_default();
        match (message.lines().any(ours), index.explains(&case.name)) {
            (false, false) => wrong.push(format!("{}: neither our sentence nor in the error index", case.name)),
            (true, true) => {
                wrong.push(format!("{}: has our sentence, and is in the index of the compiler's", case.name))
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_sentence_is_in_the_error_index() {
    let index = documents::index();
    let sentences = sentences::of_the_core().into_iter();
    let missing: Vec<_> = sentences.map(|sentence| sentence.text).filter(|text| !index.quotes(text)).collect();
    assert!(missing.is_empty(), "the error index does not explain:\n{}", missing.join("\n"));
}

#[test]
fn every_row_has_a_case() {
    let rows: BTreeSet<_> = cases().into_iter().map(|case| case.row).collect();
    let missing: Vec<_> = ROWS.chars().filter(|row| !rows.contains(&row.to_string())).collect();
    assert!(missing.is_empty(), "no case for rows {missing:?}");
    let unknown: Vec<_> = rows.iter().filter(|row| *row != "macros" && !ROWS.contains(row.as_str())).collect();
    assert!(unknown.is_empty(), "rows that the table does not have: {unknown:?}");
}

#[test]
fn no_snapshot_is_left_over() {
    let orphans = snapshot::orphans(&cases());
    assert!(orphans.is_empty(), "snapshots without a case:\n{}", orphans.join("\n"));
}

#[test]
fn the_documents_agree_with_the_cases() {
    documents::check(&cases());
}
