//! Snapshots: what `rustc` said, without what differs between machines or moves when other files are edited.

use std::{fs, path::Path};

use super::{blessing, case::Case, workspace};

/// How wide the column of line numbers is made.
const GUTTER: usize = 3;

/// Compares with the snapshot, or writes it when blessing.
pub(crate) fn compare(case: &Case, message: &str) -> Result<(), String> {
    let path = case.snapshot();
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if kept == message {
        return Ok(());
    }
    if blessing() {
        fs::write(&path, message).map_err(|error| error.to_string())?;
        return Ok(());
    }
    let at = kept.lines().zip(message.lines()).position(|(kept, found)| kept != found);
    let at = at.unwrap_or_else(|| kept.lines().count().min(message.lines().count()));
    Err(format!(
        "the message changed from line {} on (MEMTIER_BLESS=1 accepts it):\n--- kept\n{kept}--- found\n{message}",
        at + 1
    ))
}

/// The message as it is kept: paths relative to the workspace, no line numbers of other files than the case, one width of the
/// line number column, no source of the standard library (which is only there when `rust-src` is installed), no summary.
pub(crate) fn normal(stderr: &str, case: &Case) -> String {
    let workspace = format!("{}/", workspace().display());
    let own = case.path.strip_prefix(super::workspace()).unwrap_or(&case.path).to_string_lossy().into_owned();
    let mut out = String::new();
    for block in stderr.split("\n\n") {
        let summary =
            ["error: aborting due to", "For more information about", "Some errors have detailed", "error: could not"];
        if block.trim().is_empty() || summary.iter().any(|start| block.trim_start().starts_with(start)) {
            continue;
        }
        let width = block.lines().find_map(|line| line.find("--> ")).unwrap_or(GUTTER);
        let mut file = String::new();
        for line in block.trim_matches('\n').lines() {
            let line = relative(line, &workspace);
            if let Some(line) = one_line(&line, width, &own, &mut file) {
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn one_line(line: &str, width: usize, own: &str, file: &mut String) -> Option<String> {
    let (Some(gutter), Some(body)) = (line.get(..width), line.get(width..)) else { return Some(line.to_owned()) };
    for arrow in ["--> ", "::: "] {
        if let Some(place) = body.strip_prefix(arrow).filter(|_| gutter.trim().is_empty()) {
            let (path, _) = place.split_once(':').unwrap_or((place, ""));
            *file = path.to_owned();
            let place = if path == own { place } else { path };
            return Some(format!("{:GUTTER$}{arrow}{place}", ""));
        }
    }
    let numbers = gutter.chars().all(|char| char.is_ascii_digit() || char == ' ');
    let bar = body.get(1..2).is_some_and(|bar| "|=~+-".contains(bar)) && body.starts_with(' ');
    if numbers && bar {
        let elsewhere = file.as_str() != own && !file.is_empty();
        if file.starts_with("$RUST") && !body.starts_with(" =") {
            return None;
        }
        let number = if elsewhere { "" } else { gutter.trim() };
        return Some(format!("{number:GUTTER$}{body}"));
    }
    if gutter.trim().is_empty() && width > 0 && line.starts_with("  ") {
        return Some(format!("{:GUTTER$}{body}", ""));
    }
    if line.starts_with("help:") {
        // Suggestions are about the case unless they say otherwise.
        *file = own.to_owned();
    }
    Some(line.to_owned())
}

/// Paths that mean the same on every machine.
fn relative(line: &str, workspace: &str) -> String {
    let mut line = line.replace(workspace, "");
    for marker in ["/lib/rustlib/src/rust/library/", "/library/"] {
        if let Some(end) = line.find(marker) {
            let start = line[..end].rfind([' ', '`', '(']).map_or(0, |at| at + 1);
            if line[start..].starts_with('/') {
                line.replace_range(start..end + marker.len(), "$RUST/");
            }
        }
    }
    if let Some(start) = line.find("/registry/src/") {
        let from = line[..start].rfind(' ').map_or(0, |at| at + 1);
        let krate = line[start + "/registry/src/".len()..].find('/').map_or(line.len(), |at| start + 15 + at);
        line.replace_range(from..krate, "$REGISTRY/");
    }
    if let (Some(start), Some(end)) = (line.find("written to '"), line.rfind('\'')) {
        line.replace_range(start + "written to '".len()..end, "$TYPE");
    }
    line
}

/// Snapshots without a case.
pub(crate) fn orphans(cases: &[Case]) -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let known: Vec<_> = cases.iter().map(Case::snapshot).collect();
    let found = super::case::files(&tests, "stderr").into_iter().filter(|path| !known.contains(path));
    found.map(|path| path.display().to_string()).collect()
}
