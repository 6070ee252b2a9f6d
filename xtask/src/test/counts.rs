//! Counting tests from what test programs print.

/// How many tests passed, failed and were skipped, and the names of those that failed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Tests that ran and held.
    pub passed: u64,
    /// Tests that ran and did not hold.
    pub failed: u64,
    /// Tests that did not run: ignored ones, and steps that could not run here.
    pub skipped: u64,
    /// The names of failed tests, as printed.
    pub failures: Vec<String>,
    /// Tests of the program that is running which said that they cannot run here. It will count them as passed.
    saying_skipped: u64,
    /// Whether the test whose output is being shown has said so already.
    said_skipped: bool,
}

impl Counts {
    /// Takes in one line of output: libtest's results and trybuild's cases count, anything else does not.
    pub fn read_line(&mut self, line: &str) {
        let line = strip_colours(line);
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word| number_before(result, word);
            let skipped = std::mem::take(&mut self.saying_skipped).min(number("passed"));
            self.passed += number("passed") - skipped;
            self.failed += number("failed");
            self.skipped += number("ignored") + skipped;
            return;
        }
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.said_skipped = false;
        } else if line.starts_with("SKIPPED: ") || (line.starts_with("skipped: ") && !self.said_skipped) {
            // Upper case is written past the harness, once a test; lower case is output that the harness shows.
            self.said_skipped = line.starts_with("skipped: ");
            self.saying_skipped += 1;
            return;
        }
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return;
        };
        // trybuild names its cases by file and counts them nowhere; libtest counts its own tests in its result line.
        // Doctests have files in their names too, but followed by ` - item (line N)`.
        let file = name.split(" [should").next().unwrap_or(name);
        let case = file.ends_with(".rs") && !file.contains(' ');
        match verdict.trim() {
            "ok" if case => self.passed += 1,
            "wip" | "mismatch" | "error" if case => {
                self.failed += 1;
                self.failures.push(file.to_owned());
            }
            "FAILED" => self.failures.push(name.to_owned()),
            _ => {}
        }
    }

    /// Adds another count to this one.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures.iter().cloned());
    }

    /// Tests that ran.
    pub fn ran(&self) -> u64 {
        self.passed + self.failed
    }

    /// Whether the whole run may be called good.
    ///
    /// # Errors
    /// Something failed, or nothing ran at all (which is what a broken runner looks like).
    pub fn verdict(&self) -> Result<(), String> {
        match (self.ran(), self.failed) {
            (0, _) => Err("no test ran, which counts as a failure".to_owned()),
            (_, 0) => Ok(()),
            (_, failed) => Err(format!("{failed} failed")),
        }
    }

    /// `N passed, N failed, N skipped`.
    pub fn closing_line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The number in front of a word: 12 in `ok. 12 passed; 0 failed`; 0 when there is none.
fn number_before(text: &str, word: &str) -> u64 {
    let found = text.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
    found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Without `ESC [ … m`: some test programs colour their words even into a pipe.
fn strip_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Counts {
        let mut counts = Counts::default();
        text.lines().for_each(|line| counts.read_line(line));
        counts
    }

    #[test]
    fn libtest_results_add_up() {
        let counts = count(
            "running 3 tests\ntest pool::a ... ok\ntest pool::b ... FAILED\ntest slow ... ignored, needs a GPU\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s\n\
             test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n",
        );
        assert_eq!(counts.closing_line(), "41 passed, 1 failed, 1 skipped");
        assert_eq!(counts.failures, ["pool::b"]);
        assert_eq!(counts.verdict(), Err("1 failed".to_owned()));
    }

    #[test]
    fn trybuild_cases_count_and_doctests_do_not_count_twice() {
        let counts = count(
            "test tests/ui/phase/serve-twice.rs ... ok\n\
             test tests/ui/tier/x.rs [should fail to compile] ... \x1b[0m\x1b[32mok\x1b[0m\n\
             test tests/ui/tier/y.rs ... mismatch\ntest tests/ui/tier/z.rs ... error\n\
             test src/lib.rs - pool::Pool (line 12) ... ok\ntest src/lib.rs - (line 3) - compile fail ... ok\n",
        );
        assert_eq!(counts.closing_line(), "2 passed, 2 failed, 0 skipped");
        assert_eq!(counts.failures, ["tests/ui/tier/y.rs", "tests/ui/tier/z.rs"]);
    }

    #[test]
    fn a_test_that_says_it_cannot_run_is_skipped_not_passed() {
        let counts = count(
            "SKIPPED: /models/x.gguf is not there\n\nsuccesses:\n\n---- gpu::a stdout ----\nskipped: no CUDA device\n\
             skipped: no CUDA device\n\n---- gpu::b stdout ----\nskipped: no CUDA device\n\nsuccesses:\n    gpu::a\n\
             test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!(counts.closing_line(), "7 passed, 0 failed, 4 skipped");
    }

    #[test]
    fn zero_tests_are_a_failure() {
        let empty = "test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        for text in ["", "all is well: 12 passed\n", empty] {
            assert!(count(text).verdict().unwrap_err().contains("no test ran"));
        }
    }

    #[test]
    fn other_lines_do_not_count() {
        let counts = count("   Compiling x v1.0\ntest the water ... warm\ntest result: odd\ntest x.rs ... \n");
        assert_eq!(counts, Counts::default());
    }
}
