//! Running one step: what it needs, its commands, its log, its line.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::steps::{CountsAs, Given, Step, Task};
use crate::fetch::catalog::MODELS;
use crate::{fetch, gpu, oracle, paths, process, progress};

/// How steps run.
pub(super) struct Mode {
    /// What cannot run here fails.
    pub(super) strict: bool,
    /// All output goes to the terminal as it comes.
    pub(super) verbose: bool,
}

/// What steps need from outside, obtained once and only when a chosen step needs it.
#[derive(Default)]
pub(super) struct Resources {
    models: Option<Result<(), String>>,
    oracle: Option<Result<PathBuf, String>>,
    nvrtc: Option<Result<Vec<(String, String)>, String>>,
}

/// How a step went.
pub(super) struct Outcome {
    name: &'static str,
    /// Its tests.
    pub(super) counts: Counts,
    /// Why it did not run.
    skipped: Option<String>,
    time: Duration,
}

/// Runs one step.
pub(super) fn step(step: &Step, mode: &Mode, resources: &mut Resources) -> Outcome {
    println!("{:<9} {}", step.name, step.about);
    let started = Instant::now();
    let mut outcome = Outcome { name: step.name, counts: Counts::default(), skipped: None, time: Duration::ZERO };
    match prepare(step, resources) {
        Ok(given) => {
            for task in (step.tasks)(&given) {
                outcome.counts.add(&run(task, step, mode, &given));
            }
        }
        Err(why) if mode.strict => {
            outcome.counts.failed = 1;
            outcome.counts.failures.push(why);
        }
        Err(why) => {
            outcome.counts.skipped = 1;
            outcome.skipped = Some(why);
        }
    }
    outcome.time = started.elapsed();
    outcome
}

/// Fetches and sets up what the step asks for.
fn prepare(step: &Step, resources: &mut Resources) -> Result<Given, String> {
    let cache = paths::cache().map_err(|failure| failure.to_string())?;
    let mut given = Given { cache, ..Given::default() };
    if step.models {
        let fetch = || MODELS.iter().try_for_each(|model| fetch::ensure(model, &given.cache).map(drop));
        resources.models.get_or_insert_with(|| fetch().map_err(|failure| failure.to_string())).clone()?;
    }
    if step.oracle {
        let set_up = || oracle::python().map_err(|failure| format!("no oracle: {failure}"));
        given.python = Some(resources.oracle.get_or_insert_with(set_up).clone()?);
    }
    if step.nvrtc {
        let set_up = || gpu::nvrtc().map_err(|failure| failure.to_string());
        given.nvrtc = resources.nvrtc.get_or_insert_with(set_up).clone()?;
    }
    Ok(given)
}

fn run(mut task: Task, step: &Step, mode: &Mode, given: &Given) -> Counts {
    // Children look for models where we put them.
    task.command.env("MEMTIER_CACHE", &given.cache);
    let mut counts = Counts::default();
    let mut log = Log::new(step.name, &task.name);
    let started = Instant::now();
    let result = process::run_lines(&mut task.command, &mut |line| {
        counts.read_line(line);
        log.line(line);
        if mode.verbose {
            println!("{line}");
        } else if !line.trim().is_empty() {
            progress::status(&format!("{:>5.0} s  {}", started.elapsed().as_secs_f64(), line.trim()));
        }
    });
    progress::clear_status();
    let success = match result {
        Ok(status) => status.success(),
        Err(failure) => {
            log.line(failure.message());
            false
        }
    };
    judge(&task.name, task.counts_as, success, &mut counts);
    if counts.failed > 0 && !mode.verbose {
        log.show();
    }
    counts
}

/// Turns how a command ended into a count that cannot be good when the command was not.
fn judge(name: &str, counts_as: CountsAs, success: bool, counts: &mut Counts) {
    if counts_as == CountsAs::OneCheck {
        *counts = Counts::default();
        counts.passed = u64::from(success);
    } else if success && counts.ran() == 0 {
        counts.failed += 1;
        counts.failures.push(format!("{name}: it ran no test"));
    }
    // A crash, or a build that fails, prints no result.
    if !success && counts.failed == 0 {
        counts.failed = 1;
        counts.failures.push(format!("{name}: it failed"));
    }
}

impl Outcome {
    /// Whether anything failed.
    pub(super) fn failed(&self) -> bool {
        self.counts.failed > 0
    }

    /// Its failed tests, each with the step's name.
    pub(super) fn failures(&self) -> Vec<String> {
        self.counts.failures.iter().map(|failure| format!("{}: {failure}", self.name)).collect()
    }

    /// Its line in the summary.
    pub(super) fn line(&self) -> String {
        let time = format!("{:.1} s", self.time.as_secs_f64());
        let what = match &self.skipped {
            Some(why) => format!("skipped: {why}"),
            None => self.counts.closing_line(),
        };
        let verdict = if self.failed() { "FAILED" } else { "ok" };
        let verdict = if self.skipped.is_some() { "skipped" } else { verdict };
        format!("  {:<9} {verdict:<8} {time:>9}   {what}", self.name)
    }
}

/// The output of one command, kept in a file and, for showing after a failure, in memory.
struct Log {
    path: PathBuf,
    file: Option<File>,
    lines: Vec<String>,
}

impl Log {
    fn new(step: &str, task: &str) -> Self {
        let name: String = task.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = paths::target().join("xtask").join(format!("{step}-{name}.log"));
        // A log that cannot be kept is no reason not to test.
        let _ = path.parent().map(std::fs::create_dir_all);
        let file = File::create(&path).ok();
        Self { path, file, lines: Vec::new() }
    }

    fn line(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            let _ = writeln!(file, "{line}");
        }
        self.lines.push(line.to_owned());
    }

    /// Prints the end of a failed command's output, and where the rest is.
    fn show(&self) {
        const SHOWN: usize = 200;
        let start = self.lines.len().saturating_sub(SHOWN);
        if start > 0 {
            println!("    … {start} lines before these are in {}", relative(&self.path).display());
        }
        self.lines[start..].iter().for_each(|line| println!("    {line}"));
    }
}

fn relative(path: &Path) -> &Path {
    std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(counts_as: CountsAs, success: bool, output: &str) -> Counts {
        let mut counts = Counts::default();
        output.lines().for_each(|line| counts.read_line(line));
        judge("cargo test", counts_as, success, &mut counts);
        counts
    }

    #[test]
    fn a_run_without_tests_fails_even_when_the_command_is_content() {
        let counts = judged(CountsAs::PrintedTests, true, "nothing to do\n");
        assert_eq!((counts.passed, counts.failed), (0, 1));
        assert_eq!(counts.failures, ["cargo test: it ran no test"]);
    }

    #[test]
    fn a_crash_after_good_tests_fails() {
        let counts = judged(CountsAs::PrintedTests, false, "test result: ok. 4 passed; 0 failed; 0 ignored\n");
        assert_eq!((counts.passed, counts.failed), (4, 1));
    }

    #[test]
    fn a_check_counts_once_whatever_it_prints() {
        let printed = "test result: ok. 4 passed; 0 failed; 0 ignored\n";
        assert_eq!(judged(CountsAs::OneCheck, true, printed).closing_line(), "1 passed, 0 failed, 0 skipped");
        assert_eq!(judged(CountsAs::OneCheck, false, printed).closing_line(), "0 passed, 1 failed, 0 skipped");
    }
}
