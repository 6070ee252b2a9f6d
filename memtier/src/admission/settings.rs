//! The text in which an operator sets all of this.

use std::time::Duration;

use super::{
    cost::CostModel,
    decide::{Admission, AdmissionConfig},
    queue::{Backpressure, BadBackpressure},
};
use crate::{
    account::parse_size,
    plan::KvDtype,
    pressure::{BadRungs, BadThresholds, INTERVAL, Ladder, Level, Percent, Rungs, Thresholds},
    units::Tokens,
};

/// Everything that can be set about pressure, ladder and admission.
///
/// A text of lines `key = value`, where `#` starts a comment. What is not named keeps its default.
///
/// ```
/// use memtier::{Bytes, admission::Settings};
///
/// let settings = Settings::parse("
///     host.reserve = 2 GiB      # instead of 15 %
///     psi.full_critical = 20
///     slots.at = critical
/// ").unwrap();
/// assert_eq!(settings.thresholds.host_reserve, Some(Bytes::gib(2)));
///
/// let errors = Settings::parse("host.resreve = 2 GiB\npoll = 1 ms").unwrap_err();
/// assert_eq!(errors[0].to_string(), "line 1: `host.resreve` is no setting; did you mean `host.reserve`?");
/// assert_eq!(errors[1].to_string(), "line 2: poll: from 10 ms to 60 s are possible");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where levels end.
    pub thresholds: Thresholds,
    /// How often the host is read.
    pub poll: Duration,
    /// What is given up at which level.
    pub rungs: Rungs,
    /// Whether the ladder is on.
    pub ladder: bool,
    /// From which level a refusal holds the queue.
    pub hold_at: Level,
    /// From which level it is sent away.
    pub shed_at: Level,
    /// What a forward pass takes of each device of a split model.
    pub device_scratch: crate::Bytes,
    /// What loading takes of the host for a while.
    pub load_spike: crate::Bytes,
    /// When to ask again after a stall.
    pub retry_stall: Duration,
    /// When to ask again for want of memory.
    pub retry_memory: Duration,
}

/// A line that sets nothing, or settings that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSetting {
    /// No `key = value`.
    #[error("line {line}: `{text}` is no setting: write `key = value`")]
    NoPair {
        /// Its number, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// A key that nothing has.
    #[error("line {line}: `{key}` is no setting; did you mean `{nearest}`?")]
    UnknownKey {
        /// Its number, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The key that is most like it.
        nearest: &'static str,
    },
    /// The same key twice.
    #[error("line {line}: `{key}` is set a second time")]
    Twice {
        /// Its number, from 1.
        line: usize,
        /// The key.
        key: &'static str,
    },
    /// A value that the key cannot have.
    #[error("line {line}: {key}: {why}")]
    Value {
        /// Its number, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Thresholds that contradict each other.
    #[error(transparent)]
    Thresholds(#[from] BadThresholds),
    /// Rungs that are no ladder.
    #[error("ladder: {0}")]
    Rungs(#[from] BadRungs),
    /// Levels that are no backpressure.
    #[error("queue: {0}")]
    Backpressure(#[from] BadBackpressure),
}

impl Default for Settings {
    fn default() -> Self {
        let admission = AdmissionConfig::new(CostModel::free(), Tokens::MAX);
        Settings {
            thresholds: Thresholds::default(),
            poll: INTERVAL,
            rungs: Rungs::default(),
            ladder: true,
            hold_at: Level::Tight,
            shed_at: Level::Critical,
            device_scratch: admission.device_scratch,
            load_spike: admission.load_spike,
            retry_stall: admission.retry_stall,
            retry_memory: admission.retry_memory,
        }
    }
}

type Set = fn(&mut Settings, &str) -> Result<(), String>;

fn say(error: impl ToString) -> String {
    error.to_string()
}

fn percent(text: &str) -> Result<u8, String> {
    let whole = text.parse::<Percent>().map_err(say)?.in_hundredths();
    if whole.is_multiple_of(100) { Ok((whole / 100) as u8) } else { Err(format!("`{text}` is no whole percentage")) }
}

fn count(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let count = digits.then(|| text.parse().ok()).flatten();
    count.ok_or_else(|| format!("`{text}` is no whole number below 4294967296"))
}

fn time(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no time: write a number and `ms` or `s`, as in 250 ms");
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(bad)?);
    let number = u64::from(count(number).map_err(|_| bad())?);
    match unit.trim() {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(bad()),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" | "true" => Ok(true),
        "off" | "no" | "false" => Ok(false),
        // `0` and `1` are refused on purpose: a switch that was read by its presence took `=0` for on.
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

/// Every setting. One table, so that a key that is read is a key that is suggested.
const SETTINGS: &[(&str, Set)] = &[
    ("poll", |s, v| {
        s.poll = time(v)?;
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        if range.contains(&s.poll) { Ok(()) } else { Err("from 10 ms to 60 s are possible".into()) }
    }),
    ("host.reserve", |s, v| parse_size(v).map(|v| s.thresholds.host_reserve = Some(v)).map_err(say)),
    ("host.reserve_min", |s, v| parse_size(v).map(|v| s.thresholds.host_reserve_min = v).map_err(say)),
    ("host.reserve_percent", |s, v| percent(v).map(|v| s.thresholds.host_reserve_percent = v)),
    ("host.tight_divisor", |s, v| count(v).map(|v| s.thresholds.host_tight_divisor = v)),
    ("host.watch_divisor", |s, v| count(v).map(|v| s.thresholds.host_watch_divisor = v)),
    ("cgroup.reserve_min", |s, v| parse_size(v).map(|v| s.thresholds.cgroup_reserve_min = v).map_err(say)),
    ("cgroup.reserve_percent", |s, v| percent(v).map(|v| s.thresholds.cgroup_reserve_percent = v)),
    ("psi.full_critical", |s, v| v.parse().map(|v| s.thresholds.psi_full_critical = v).map_err(say)),
    ("psi.full_tight_above", |s, v| v.parse().map(|v| s.thresholds.psi_full_tight_above = v).map_err(say)),
    ("psi.some_tight", |s, v| v.parse().map(|v| s.thresholds.psi_some_tight = v).map_err(say)),
    ("psi.some_watch_above", |s, v| v.parse().map(|v| s.thresholds.psi_some_watch_above = v).map_err(say)),
    ("device.reserve", |s, v| parse_size(v).map(|v| s.thresholds.device_reserve = v).map_err(say)),
    ("device.tight_divisor", |s, v| count(v).map(|v| s.thresholds.device_tight_divisor = v)),
    ("device.watch_divisor", |s, v| count(v).map(|v| s.thresholds.device_watch_divisor = v)),
    ("device.scratch", |s, v| parse_size(v).map(|v| s.device_scratch = v).map_err(say)),
    ("ladder", |s, v| switch(v).map(|v| s.ladder = v)),
    ("kv.at", |s, v| v.parse().map(|v| s.rungs.kv_at = v).map_err(say)),
    ("kv.to", |s, v| v.parse::<KvDtype>().map(|v| s.rungs.kv_to = v).map_err(say)),
    ("slots.at", |s, v| v.parse().map(|v| s.rungs.slots_at = v).map_err(say)),
    ("slots.divisor", |s, v| count(v).map(|v| s.rungs.slots_divisor = v)),
    ("slots.critical", |s, v| count(v).map(|v| s.rungs.slots_critical = v)),
    ("window.at", |s, v| v.parse().map(|v| s.rungs.window_at = v).map_err(say)),
    ("window.divisor", |s, v| count(v).map(|v| s.rungs.window_divisor = v)),
    ("window.divisor_critical", |s, v| count(v).map(|v| s.rungs.window_divisor_critical = v)),
    ("evict.at", |s, v| v.parse().map(|v| s.rungs.evict_at = v).map_err(say)),
    ("queue.hold_at", |s, v| v.parse().map(|v| s.hold_at = v).map_err(say)),
    ("queue.shed_at", |s, v| v.parse().map(|v| s.shed_at = v).map_err(say)),
    ("load.spike", |s, v| parse_size(v).map(|v| s.load_spike = v).map_err(say)),
    ("retry.stall", |s, v| time(v).map(|v| s.retry_stall = v)),
    ("retry.memory", |s, v| time(v).map(|v| s.retry_memory = v)),
];

impl Settings {
    /// Every key that can be set.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        SETTINGS.iter().map(|(key, _)| *key)
    }

    /// Reads a text. Nothing is set when anything is wrong.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn parse(text: &str) -> Result<Self, Vec<BadSetting>> {
        let (mut settings, mut errors, mut seen) = (Settings::default(), Vec::new(), Vec::new());
        for (index, content) in text.lines().enumerate() {
            let (line, content) = (index + 1, content.split('#').next().unwrap_or_default().trim());
            if content.is_empty() {
                continue;
            }
            let Some((key, value)) = content.split_once('=') else {
                errors.push(BadSetting::NoPair { line, text: content.to_owned() });
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            match SETTINGS.iter().find(|(known, _)| *known == key) {
                None => errors.push(BadSetting::UnknownKey { line, key: key.to_owned(), nearest: nearest(key) }),
                Some((key, _)) if seen.contains(key) => errors.push(BadSetting::Twice { line, key }),
                Some((key, set)) => {
                    seen.push(*key);
                    if let Err(why) = set(&mut settings, value) {
                        errors.push(BadSetting::Value { line, key, why });
                    }
                }
            }
        }
        errors.extend(settings.check().err().into_iter().flatten());
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Whether they make sense together.
    ///
    /// # Errors
    /// Every contradiction.
    pub fn check(&self) -> Result<(), Vec<BadSetting>> {
        let mut errors: Vec<BadSetting> = Vec::new();
        errors.extend(self.thresholds.check().err().into_iter().flatten().map(BadSetting::from));
        errors.extend(Ladder::new(self.rungs).err().into_iter().flatten().map(BadSetting::from));
        errors.extend(Backpressure::new(self.hold_at, self.shed_at).err().map(BadSetting::from));
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The ladder they describe; off when it is switched off.
    ///
    /// # Errors
    /// The rungs, when they are no ladder.
    pub fn ladder(&self) -> Result<Ladder, Vec<BadRungs>> {
        let ladder = Ladder::new(self.rungs)?;
        Ok(if self.ladder { ladder } else { Ladder::disabled() })
    }

    /// The backpressure they describe.
    ///
    /// # Errors
    /// The levels, when they are none.
    pub fn backpressure(&self) -> Result<Backpressure, BadBackpressure> {
        Backpressure::new(self.hold_at, self.shed_at)
    }

    /// Admission for an engine that costs `cost` and holds `capacity` tokens of KV.
    pub fn admission(&self, cost: CostModel, capacity: Tokens) -> Admission {
        let Settings { thresholds, device_scratch, load_spike, retry_stall, retry_memory, .. } = *self;
        Admission::new(AdmissionConfig {
            thresholds,
            cost,
            capacity,
            device_scratch,
            load_spike,
            retry_stall,
            retry_memory,
        })
    }
}

/// The known key that takes the fewest edits to reach.
fn nearest(key: &str) -> &'static str {
    // A key of megabytes is nobody's typo.
    let key: Vec<char> = key.chars().take(64).collect();
    Settings::keys().min_by_key(|known| edits(&key, known)).unwrap_or("poll")
}

/// Edit distance, one row at a time.
fn edits(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (index, letter) in to.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for at in 0..from.len() {
            let replaced = diagonal + usize::from(from[at] != letter);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_text_is_the_default() {
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        assert_eq!(Settings::parse("# nothing\n\n   \n"), Ok(Settings::default()));
        assert_eq!(Settings::default().ladder(), Ok(Ladder::default()));
        assert_eq!(Settings::parse("ladder = off").unwrap().ladder(), Ok(Ladder::disabled()));
    }

    #[test]
    fn every_key_sets_something() {
        for key in Settings::keys() {
            let differs = ["3 s", "7 MiB", "12", "2", "off", "critical", "watch", "q8_0"].iter().filter_map(|value| {
                let mut settings = Settings::default();
                let (_, set) = SETTINGS.iter().find(|(known, _)| *known == key)?;
                set(&mut settings, value).ok().map(|()| settings != Settings::default())
            });
            assert!(differs.into_iter().any(|differs| differs), "{key}");
        }
    }

    #[test]
    fn twenty_wrong_spellings_are_twenty_clear_errors() {
        let wrong = [
            ("host.reserve", "line 1: `host.reserve` is no setting: write `key = value`"),
            ("host.resreve = 1GiB", "did you mean `host.reserve`?"),
            ("HOST.RESERVE = 1GiB", "is no setting"),
            ("psi.full = 15", "is no setting"),
            ("PN_PSI_FULL_REJECT = 15", "is no setting"),
            ("host.reserve = 1", "`1` is no size"),
            ("host.reserve = 1GB", "`1GB` is no size"),
            ("host.reserve = -1GiB", "is no size"),
            ("host.reserve =", "`` is no size"),
            ("host.reserve_percent = 101", "`101` is no percentage"),
            ("host.reserve_percent = 15.5", "no whole percentage"),
            ("psi.full_critical = 15%", "`15%` is no percentage"),
            ("psi.full_critical = 0", "psi_full_tight_above begins after psi_full_critical"),
            ("psi.some_tight = nan", "`nan` is no percentage"),
            ("device.tight_divisor = 0", "device_tight_divisor is 0"),
            ("device.tight_divisor = 4", "device_watch_divisor begins after device_tight_divisor"),
            ("device.tight_divisor = 4294967296", "is no whole number"),
            ("ladder = 0", "`0` is neither `on` nor `off`"),
            ("kv.at = ok", "ladder: kv_at is ok"),
            ("kv.to = int4", "`int4` is no KV element type"),
            ("slots.at = high", "`high` is no level"),
            ("slots.divisor = 0", "ladder: slots_divisor is 0"),
            ("window.divisor_critical = 1", "a higher level would allow more"),
            ("queue.hold_at = ok", "queue: hold_at is ok"),
            ("queue.shed_at = watch", "queue: shed_at is below hold_at"),
            ("poll = 250", "`250` is no time"),
            ("poll = 0.25 s", "is no time"),
            ("poll = 5 ms", "from 10 ms to 60 s"),
            ("retry.stall = 1 h", "is no time"),
            ("poll = 1 s\npoll = 2 s", "line 2: `poll` is set a second time"),
        ];
        for (text, says) in wrong {
            let errors = Settings::parse(text).expect_err(text);
            let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|said| said.contains(says)), "{text}: {said:?}");
        }
        let all = wrong.map(|(text, _)| text.lines().next().unwrap()).join("\n");
        assert!(Settings::parse(&all).unwrap_err().len() >= 20, "all at once");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics(key in 0usize..40, text in "\\PC{0,40}", value in "[0-9a-zA-Z .%-]{0,12}") {
            let _ = Settings::parse(&text);
            let key = Settings::keys().nth(key).unwrap_or("");
            let _ = Settings::parse(&format!("{key} = {value}"));
            let _ = Settings::parse(&format!("{text}={value}"));
        }
    }
}
