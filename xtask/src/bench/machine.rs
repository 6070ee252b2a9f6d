//! What a number was measured on, and whether the machine was quiet.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::json::Json;

/// The machine, at the start of a run.
#[derive(Debug)]
pub(super) struct Machine {
    cpu: String,
    /// Logical CPUs that this process may use.
    pub(super) cpus: u64,
    system: String,
    compiler: String,
    commit: String,
    date: String,
    load: String,
    /// CPUs' worth of other work, sampled just now: the load average still remembers our own build.
    busy_cpus: Option<f64>,
}

/// More than this much foreign work makes numbers doubtful.
const NOISY_CPUS: f64 = 0.15;

impl Machine {
    /// Looks; takes a second.
    pub(super) fn look() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            cpu: cpu_name(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            system: said_by("uname", &["-srm"]),
            compiler: said_by("rustc", &["--version"]),
            commit: said_by("git", &["describe", "--always", "--dirty"]),
            date: utc(now),
            load: fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
            busy_cpus: busy_cpus(Duration::from_secs(1)),
        }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Json {
        Json::object([
            ("cpu", Json::text(&self.cpu)),
            ("cpus", Json::Number(self.cpus as f64)),
            ("system", Json::text(&self.system)),
            ("compiler", Json::text(&self.compiler)),
            ("commit", Json::text(&self.commit)),
            ("date", Json::text(&self.date)),
            ("load_average", Json::text(&self.load)),
            ("busy_cpus_before", Json::Number(self.busy_cpus.unwrap_or(f64::NAN))),
        ])
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, system, compiler, commit, date, load, busy_cpus } = self;
        writeln!(f, "{cpu}, {cpus} CPUs, {system}")?;
        writeln!(f, "{compiler}, commit {commit}, {date}")?;
        write!(f, "load average {load}")?;
        match busy_cpus {
            Some(busy) => write!(f, ", {busy:.2} CPUs busy with other work just now")?,
            None => write!(f, ", other work unknown")?,
        }
        if busy_cpus.is_some_and(|busy| busy > NOISY_CPUS) {
            write!(f, "\nwarning: this machine is not quiet; believe the ratios (interleaved), not the numbers")?;
        }
        Ok(())
    }
}

fn cpu_name(cpuinfo: &str) -> String {
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// What a program says, or `unknown`: a missing program must not stop a measurement.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(crate::paths::root()).output();
    let said = output.ok().filter(|output| output.status.success());
    said.map_or_else(|| "unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// CPUs kept busy (or withheld by a hypervisor) over a pause in which this process does nothing.
fn busy_cpus(pause: Duration) -> Option<f64> {
    let read = || ticks(&fs::read_to_string("/proc/stat").ok()?);
    let before = read()?;
    sleep(pause);
    let after = read()?;
    // The kernel counts in hundredths of a second here, whatever its own clock.
    let busy = after.saturating_sub(before) as f64 / 100.0;
    Some(busy / pause.as_secs_f64())
}

/// Ticks that were not idle, over all CPUs: user, nice, system, irq, softirq and steal.
fn ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = all.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6, 7].iter().map(|&field| fields.get(field).copied()).sum()
}

/// Seconds since 1970 as `YYYY-MM-DD HH:MM UTC`.
fn utc(seconds: u64) -> String {
    // Days to a civil date, counted in eras of 400 years that start on 1 March.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (seconds % 86_400 / 3_600, seconds % 3_600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_798_761_599), "2026-12-31 23:59 UTC");
    }

    #[test]
    fn busy_time_leaves_out_idle_and_waiting() {
        let stat = "cpu  10 1 20 900 50 3 4 5 0 0\ncpu0 1 2 3\n";
        assert_eq!(ticks(stat), Some(43));
        assert_eq!(ticks("cpu  10\n"), None);
        assert_eq!(cpu_name("processor : 0\nmodel name\t: Some CPU 9\n"), "Some CPU 9");
    }
}
