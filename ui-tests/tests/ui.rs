//! Every crime is refused, with the words that are kept beside it; every row of the table of illegal states has one.

mod runner;

use std::{collections::BTreeSet, time::Instant};

use runner::{
    case::{Case, cases},
    compiler::Compiler,
    documents, in_parallel, sentences, snapshot,
};

/// The rows of the design's table of illegal states.
const ROWS: std::ops::RangeInclusive<char> = 'a'..='u';

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
    let unexplained = cases().into_iter().filter(|case| {
        let message = std::fs::read_to_string(case.snapshot()).unwrap_or_default();
        let first = message.lines().next().unwrap_or_default();
        let ours = core.iter().chain(&macros).any(|sentence| sentence.is_in(first));
        !ours && !index.explains(&case.name)
    });
    let unexplained: Vec<_> = unexplained.map(|case| case.name).collect();
    assert!(unexplained.is_empty(), "neither our sentence nor in the error index:\n{}", unexplained.join("\n"));
}

#[test]
fn every_sentence_is_in_the_error_index() {
    let index = documents::index();
    let missing: Vec<_> = sentences::of_the_core().into_iter().map(|sentence| sentence.text).collect();
    let missing: Vec<_> = missing.into_iter().filter(|sentence| !index.quotes(sentence)).collect();
    assert!(missing.is_empty(), "the error index does not explain:\n{}", missing.join("\n"));
}

#[test]
fn every_row_has_a_case() {
    let rows: BTreeSet<_> = cases().into_iter().map(|case| case.row).collect();
    let missing: Vec<_> = ROWS.filter(|row| !rows.contains(&row.to_string())).collect();
    assert!(missing.is_empty(), "no case for rows {missing:?}");
    let unknown: Vec<_> = rows.iter().filter(|row| *row != "macros" && !ROWS.any(|known| known.to_string() == **row)).collect();
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
