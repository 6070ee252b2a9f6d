//! Two models under one configuration, line by line.

use std::fmt::Write as _;

use memtier::Bytes;
use memtier::plan::{Charge, PlanLine};

use crate::args::{Options, Output};
use crate::command::{Outcome, paint};
use crate::planned::{self, Planned};
use crate::{json, text};

/// `memtier compare A B`. Fits when both do.
///
/// # Errors
/// One line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let [a, b] = options.models.as_slice() else { return Err("compare takes two models".to_owned()) };
    let (first, second) = (planned::read(options, a)?, planned::read(options, b)?);
    let (first, second) = (planned::plan(options, &first)?, planned::plan(options, &second)?);
    let said = match options.output {
        Output::Text => table(&first, &second, options),
        Output::Json => {
            let [a, b] = [json::plan(&first), json::plan(&second)];
            format!("[{},{}]\n", a.trim_end(), b.trim_end())
        }
        Output::Html(_) | Output::Svg(_) => {
            return Err("compare writes text or --json; plan each model for a picture".to_owned());
        }
    };
    Ok(if first.fits() && second.fits() { Outcome::Fits(said) } else { Outcome::Refused(said) })
}

/// Lines of all devices under one name, in the order in which they appear.
fn sums(planned: &Planned<'_>) -> Vec<(String, Bytes)> {
    let mut sums: Vec<(String, Bytes)> = Vec::new();
    let mut add = |line: &PlanLine, bytes: Bytes| {
        let at = sums.iter().position(|sum| *sum.0 == *line.name).unwrap_or_else(|| {
            sums.push((line.name.to_string(), Bytes::ZERO));
            sums.len() - 1
        });
        // Parts of budgets, or of sums that the planner has checked.
        sums[at].1 = sums[at].1.plus(bytes).unwrap_or(Bytes::MAX);
    };
    for on in &planned.devices {
        match &on.result {
            Ok(plan) => plan.lines().iter().for_each(|line| add(line, line.granted)),
            Err(failure) => failure
                .lines()
                .iter()
                .filter(|line| line.charge != Charge::LoadOnly)
                .for_each(|line| add(line, line.asked)),
        }
    }
    sums
}

fn total(planned: &Planned<'_>) -> Bytes {
    let each = planned
        .devices
        .iter()
        .map(|on| on.result.as_ref().map_or_else(|failure| failure.requested(), |plan| plan.total()));
    each.fold(Bytes::ZERO, |sum, bytes| sum.plus(bytes).unwrap_or(Bytes::MAX))
}

fn verdict(planned: &Planned<'_>) -> &'static str {
    if planned.fits() { "fits" } else { "does not fit" }
}

fn table(first: &Planned<'_>, second: &Planned<'_>, options: &Options) -> String {
    let paint = paint(options);
    let mut said = String::new();
    for (letter, planned) in [("A", first), ("B", second)] {
        let line = format!("{letter}  {}", text::headline(planned.pricing.layout()));
        let verdict = if planned.fits() { paint.good(verdict(planned)) } else { paint.bad(verdict(planned)) };
        let _ = writeln!(said, "{line}: {verdict}");
        for note in &planned.notes {
            let _ = writeln!(said, "   {}", paint.faint(&format!("note: {note}")));
        }
    }
    let (a, b) = (sums(first), sums(second));
    let mut names: Vec<&str> = a.iter().map(|sum| sum.0.as_str()).collect();
    names.extend(b.iter().map(|sum| sum.0.as_str()).filter(|name| !a.iter().any(|sum| sum.0 == *name)));
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(24);
    let _ = writeln!(said, "\n  {:<width$} {:>10} {:>10} {:>11}", "MiB", "A", "B", "B - A");
    let of =
        |sums: &[(String, Bytes)], name: &str| sums.iter().find(|sum| sum.0 == name).map_or(Bytes::ZERO, |sum| sum.1);
    for name in names {
        let _ = writeln!(said, "{}", row(name, of(&a, name), of(&b, name), width));
    }
    let _ = writeln!(said, "{}", row("total on the devices", total(first), total(second), width));
    said
}

fn row(name: &str, a: Bytes, b: Bytes, width: usize) -> String {
    let (rounded_a, rounded_b) = (i128::from(a.in_mib()), i128::from(b.in_mib()));
    format!("  {name:<width$} {rounded_a:>10} {rounded_b:>10} {:>+11}", rounded_b - rounded_a)
}
