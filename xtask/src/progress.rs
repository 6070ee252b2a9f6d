//! Progress on standard error: a bar that redraws itself on a terminal, a line per quarter elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A bar over a known number of bytes.
#[derive(Debug)]
pub struct Bar {
    label: String,
    total_bytes: u64,
    started: Instant,
    drawn: Option<Instant>,
    quarters: u64,
    terminal: bool,
}

/// Redraw at most this often: faster than the eye follows costs only time.
const REDRAW: Duration = Duration::from_millis(100);

impl Bar {
    /// Starts a bar. Draws nothing until the first [`Bar::set`].
    pub fn new(label: impl Into<String>, total_bytes: u64) -> Self {
        Self {
            label: label.into(),
            total_bytes: total_bytes.max(1),
            started: Instant::now(),
            drawn: None,
            quarters: 0,
            terminal: is_terminal(),
        }
    }

    /// Shows that `done_bytes` of the total are there. More than the total shows as the total.
    pub fn set(&mut self, done_bytes: u64) {
        let done = done_bytes.min(self.total_bytes);
        if self.terminal {
            if self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
                self.drawn = Some(Instant::now());
                eprint!("\r\x1b[K{}", self.line(done, self.started.elapsed()));
                // A bar that cannot be drawn is no reason to stop the work.
                let _ = std::io::stderr().flush();
            }
        } else {
            let quarters = done * 4 / self.total_bytes;
            if quarters > self.quarters && quarters < 4 {
                self.quarters = quarters;
                eprintln!("{}", self.line(done, self.started.elapsed()));
            }
        }
    }

    /// Replaces the bar by one closing line with the size and the time.
    pub fn finish(self, done_bytes: u64) {
        let seconds = self.started.elapsed().as_secs_f64();
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{} {}, {seconds:.1} s", self.label, megabytes(done_bytes));
    }

    /// Removes the bar, for an error line that follows.
    pub fn abandon(self) {
        if self.terminal && self.drawn.is_some() {
            eprint!("\r\x1b[K");
        }
    }

    fn line(&self, done: u64, elapsed: Duration) -> String {
        const WIDTH: u64 = 24;
        let filled = done * WIDTH / self.total_bytes;
        let bar: String = (0..WIDTH).map(|i| if i < filled { '#' } else { '-' }).collect();
        let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
        let left = (self.total_bytes - done) as f64 / rate.max(1.0);
        let (label, total) = (&self.label, megabytes(self.total_bytes));
        // The first moments say nothing about the rate.
        let forecast = match done {
            0 => String::new(),
            _ => format!(", {}/s, {left:.0} s left", megabytes(rate as u64)),
        };
        format!("{label} [{bar}] {} of {total}{forecast}", megabytes(done))
    }
}

/// One status line that replaces itself, on a terminal only.
pub fn status(line: &str) {
    if is_terminal() {
        // Cut to what fits beside the cursor on a narrow terminal: a wrapped line could not be erased again.
        let line: String = line.chars().filter(|c| !c.is_control()).take(78).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}

/// Erases [`status`].
pub fn clear_status() {
    if is_terminal() {
        eprint!("\r\x1b[K");
    }
}

fn is_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Bytes as decimal megabytes, the unit in which downloads are advertised.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_share_rate_and_what_is_left() {
        let bar = Bar::new("get x", 200_000_000);
        let line = bar.line(50_000_000, Duration::from_secs(5));
        assert_eq!(line, "get x [######------------------] 50.0 MB of 200.0 MB, 10.0 MB/s, 15 s left");
        assert_eq!(bar.line(0, Duration::ZERO), "get x [------------------------] 0.0 MB of 200.0 MB");
    }

    #[test]
    fn an_empty_total_is_no_division_by_zero() {
        let mut bar = Bar::new("x", 0);
        bar.set(10);
        assert!(bar.line(1, Duration::ZERO).contains("########"));
    }
}
