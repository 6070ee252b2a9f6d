//! What memtier's core costs: `memtier-bench` measures, this reads its lines.

use std::collections::HashMap;
use std::process::Command;

use tinyjson::JsonValue;

use super::json;
use super::table::{Measured, Row};
use crate::failure::Failure;
use crate::{build, process};

/// Builds and runs `memtier-bench`.
///
/// # Errors
/// It does not build or run, or prints something else than measurements.
pub(super) fn measure() -> Result<Vec<Row>, Failure> {
    let program = build::binary("memtier-bench", "memtier-bench")?;
    let output = process::output(&mut Command::new(program))?;
    rows(&output)
}

/// One measurement.
struct Line {
    what: String,
    who: String,
    unit: String,
    measured: Measured,
}

fn rows(output: &str) -> Result<Vec<Row>, Failure> {
    let lines: Vec<Line> = output.lines().filter_map(json::last_object).filter_map(line).collect();
    if lines.is_empty() {
        return Err(Failure::new("memtier-bench printed no measurement"));
    }
    let ours = |what: &str| lines.iter().find(|line| line.what == what && line.who == "memtier");
    let has_peer = |what: &str| lines.iter().any(|line| line.what == what && line.who != "memtier");
    let row = |line: &Line| {
        let peer = (line.who != "memtier").then(|| (line.who.clone(), line.measured));
        Row {
            what: line.what.clone(),
            unit: line.unit.clone(),
            larger_is_better: false,
            ours: ours(&line.what).map(|line| line.measured),
            peer,
        }
    };
    // Ours stands in every peer's row; it needs one of its own only when there is no peer.
    Ok(lines.iter().filter(|line| line.who != "memtier" || !has_peer(&line.what)).map(row).collect())
}

fn line(object: HashMap<String, JsonValue>) -> Option<Line> {
    let text = |key: &str| object.get(key)?.get::<String>().cloned();
    let number = |key: &str| object.get(key)?.get::<f64>().copied();
    let measured = Measured { median: number("median")?, least: number("least")?, most: number("most")? };
    Some(Line { what: text("what")?, who: text("who")?, unit: text("unit")?, measured })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_put_beside_each_peer() {
        let line = |what: &str, who: &str, ns: f64| {
            format!(
                "{{\"what\": \"{what}\", \"who\": \"{who}\", \"unit\": \"ns\", \"median\": {ns}, \"least\": {ns}, \
                 \"most\": {ns}}}"
            )
        };
        let output = [line("take", "memtier", 2.0), line("take", "a", 4.0), line("take", "b", 1.0)].join("\n");
        let rows = rows(&[output, line("plan", "memtier", 9.0)].join("\n")).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows.iter().map(Row::ratio).collect::<Vec<_>>(), [Some(2.0), Some(0.5), None]);
        assert!(super::rows("hello\n").is_err());
    }
}
