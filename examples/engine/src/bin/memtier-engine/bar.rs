//! A progress bar on standard error, for people: nothing where it is no terminal.

use std::io::{IsTerminal, Write, stderr};

/// One bar.
pub(crate) struct Bar {
    what: &'static str,
    shown: Option<u64>,
    terminal: bool,
}

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        Bar { what, shown: None, terminal: stderr().is_terminal() }
    }

    /// Shows `done` of `total`, when a percent has passed since the last time.
    pub(crate) fn show(&mut self, done: u64, total: u64) {
        let percent = done.saturating_mul(100) / total.max(1);
        if !self.terminal || self.shown == Some(percent) {
            return;
        }
        self.shown = Some(percent);
        let filled = (percent as usize * 40 / 100).min(40);
        eprint!("\r{:<10} [{:<40}] {percent:>3} %", self.what, "#".repeat(filled));
        let _ = stderr().flush();
    }

    /// Takes the line away.
    pub(crate) fn done(&self) {
        if self.terminal && self.shown.is_some() {
            eprint!("\r{:<60}\r", "");
            let _ = stderr().flush();
        }
    }
}
