//! What is given up at which level: a pure function from level and configuration to absolute limits.

use std::fmt;

use super::level::Level;
use crate::{plan::KvDtype, units::Tokens};

/// What an engine serves with: its configuration, or what is left of it under pressure. Absolute values, so applying them
/// twice is applying them once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeLimits {
    /// Requests that decode at a time.
    pub slots: u32,
    /// The longest prompt that is prefilled, in tokens.
    pub prefill_window: Tokens,
    /// Element type of KV state that is created from now on. What is there keeps its own.
    pub kv: KvDtype,
    /// Whether blocks that only the prefix cache holds are evicted.
    pub evict_cached: bool,
}

/// Where each rung engages, and how far it reduces.
///
/// The defaults are those of the server that the levels come from. There, eviction was a flag that nothing read; here the
/// engine's prefix cache is what it empties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rungs {
    /// New KV state is quantised from here on. Default: WATCH.
    pub kv_at: Level,
    /// What to. Default: Q4_0.
    pub kv_to: KvDtype,
    /// Slots are divided from here on. Default: TIGHT.
    pub slots_at: Level,
    /// By this. Default: 2.
    pub slots_divisor: u32,
    /// At CRITICAL so many slots are left. Default: 1.
    pub slots_critical: u32,
    /// The prefill window is divided from here on. Default: TIGHT.
    pub window_at: Level,
    /// By this. Default: 2.
    pub window_divisor: u32,
    /// By this at CRITICAL. Default: 4.
    pub window_divisor_critical: u32,
    /// Cached blocks are evicted from here on. Default: TIGHT.
    pub evict_at: Level,
}

impl Default for Rungs {
    fn default() -> Self {
        Rungs {
            kv_at: Level::Watch,
            kv_to: KvDtype::Q4_0,
            slots_at: Level::Tight,
            slots_divisor: 2,
            slots_critical: 1,
            window_at: Level::Tight,
            window_divisor: 2,
            window_divisor_critical: 4,
            evict_at: Level::Tight,
        }
    }
}

/// Rungs that are no ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRungs {
    /// A rung at OK.
    #[error("{0} is ok: at that level the configuration holds as it is")]
    AtOk(&'static str),
    /// A divisor or a number of slots is zero.
    #[error("{0} is 0: the least is 1")]
    Zero(&'static str),
    /// CRITICAL would relax what TIGHT has reduced.
    #[error("window_divisor_critical is smaller than window_divisor: a higher level would allow more")]
    Relaxes,
}

/// The ladder. Copies are the same ladder.
///
/// ```
/// use memtier::Tokens;
/// use memtier::plan::KvDtype;
/// use memtier::pressure::{Ladder, Level, ServeLimits};
///
/// let config = ServeLimits { slots: 8, prefill_window: Tokens::new(16_384), kv: KvDtype::F16, evict_cached: false };
/// let ladder = Ladder::default();
/// assert_eq!(ladder.limits(Level::Ok, &config).limits, config);
/// let tight = ladder.limits(Level::Tight, &config);
/// assert_eq!((tight.limits.slots, tight.limits.prefill_window), (4, Tokens::new(8192)));
/// assert_eq!(
///     tight.to_string(),
///     "tight: slots 8 -> 4, prefill window 16384 -> 8192 tokens, new KV f16 -> q4_0, cached blocks are evicted",
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ladder {
    rungs: Rungs,
    enabled: bool,
}

impl Default for Ladder {
    fn default() -> Self {
        Ladder { rungs: Rungs::default(), enabled: true }
    }
}

/// What a level leaves of a configuration. `Display` is the note for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Degradation {
    /// At which level.
    pub level: Level,
    /// What holds.
    pub limits: ServeLimits,
    /// What was configured.
    pub configured: ServeLimits,
}

impl Ladder {
    /// A ladder of these rungs.
    ///
    /// # Errors
    /// [`BadRungs`], every one.
    pub fn new(rungs: Rungs) -> Result<Self, Vec<BadRungs>> {
        let levels = [
            (rungs.kv_at, "kv_at"),
            (rungs.slots_at, "slots_at"),
            (rungs.window_at, "window_at"),
            (rungs.evict_at, "evict_at"),
        ];
        let counts = [
            (rungs.slots_divisor, "slots_divisor"),
            (rungs.slots_critical, "slots_critical"),
            (rungs.window_divisor, "window_divisor"),
            (rungs.window_divisor_critical, "window_divisor_critical"),
        ];
        let mut errors: Vec<_> =
            levels.into_iter().filter(|(at, _)| *at == Level::Ok).map(|(_, name)| BadRungs::AtOk(name)).collect();
        errors.extend(counts.into_iter().filter(|(count, _)| *count == 0).map(|(_, name)| BadRungs::Zero(name)));
        if rungs.window_divisor_critical < rungs.window_divisor {
            errors.push(BadRungs::Relaxes);
        }
        if errors.is_empty() { Ok(Ladder { rungs, enabled: true }) } else { Err(errors) }
    }

    /// A ladder that never reduces anything: the switch.
    pub fn disabled() -> Self {
        Ladder { enabled: false, ..Self::default() }
    }

    /// What `level` leaves of `config`. Pure: no reading, no allocation.
    ///
    /// * Reduce-only: no value is ever above the configured one.
    /// * Monotonic: a higher level never allows more than a lower one.
    /// * At [`Level::Ok`], and when switched off, the result is the configuration.
    pub fn limits(&self, level: Level, config: &ServeLimits) -> Degradation {
        let rungs = &self.rungs;
        let engaged = |at: Level| self.enabled && level != Level::Ok && level >= at;
        let critical = level == Level::Critical;
        let mut limits = *config;
        if engaged(rungs.kv_at) && rungs.kv_to.bytes_of_32() < config.kv.bytes_of_32() {
            limits.kv = rungs.kv_to;
        }
        if engaged(rungs.slots_at) {
            // One slot always stays: an engine without any would never get rid of its pressure.
            let half = (config.slots / rungs.slots_divisor.max(1)).max(1);
            let left = if critical { half.min(rungs.slots_critical) } else { half };
            limits.slots = left.min(config.slots);
        }
        if engaged(rungs.window_at) {
            let divisor = if critical { rungs.window_divisor_critical } else { rungs.window_divisor };
            let left = Tokens::new((config.prefill_window.count() / u64::from(divisor.max(1))).max(1));
            limits.prefill_window = left.min(config.prefill_window);
        }
        limits.evict_cached |= engaged(rungs.evict_at);
        Degradation { level, limits, configured: *config }
    }
}

impl Degradation {
    /// Whether anything is less than configured.
    pub fn degraded(&self) -> bool {
        self.limits != self.configured
    }
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Degradation { level, limits, configured } = self;
        write!(f, "{level}: ")?;
        if !self.degraded() {
            return f.write_str("as configured");
        }
        let mut separator = "";
        if limits.slots != configured.slots {
            write!(f, "slots {} -> {}", configured.slots, limits.slots)?;
            separator = ", ";
        }
        if limits.prefill_window != configured.prefill_window {
            let (from, to) = (configured.prefill_window.count(), limits.prefill_window);
            write!(f, "{separator}prefill window {from} -> {to}")?;
            separator = ", ";
        }
        if limits.kv != configured.kv {
            write!(f, "{separator}new KV {} -> {}", configured.kv, limits.kv)?;
            separator = ", ";
        }
        if limits.evict_cached != configured.evict_cached {
            write!(f, "{separator}cached blocks are evicted")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Level::{Critical, Ok, Tight, Watch};

    fn config(slots: u32, window: u64, kv: KvDtype) -> ServeLimits {
        ServeLimits { slots, prefill_window: Tokens::new(window), kv, evict_cached: false }
    }

    #[test]
    fn every_rung_row_of_the_table() {
        let (f32, q4) = (KvDtype::F32, KvDtype::Q4_0);
        let table = [
            (Ok, 8, 16_384, f32, false),
            (Watch, 8, 16_384, q4, false),
            (Tight, 4, 8192, q4, true),
            (Critical, 1, 4096, q4, true),
        ];
        for (level, slots, window, kv, evict_cached) in table {
            let limits = Ladder::default().limits(level, &config(8, 16_384, f32)).limits;
            assert_eq!(limits, ServeLimits { evict_cached, ..config(slots, window, kv) }, "{level}");
        }
    }

    #[test]
    fn small_configurations_keep_working() {
        let limits = |slots, window| Ladder::default().limits(Critical, &config(slots, window, KvDtype::Q4_0)).limits;
        assert_eq!((limits(1, 1).slots, limits(1, 1).prefill_window), (1, Tokens::new(1)));
        assert_eq!((limits(0, 0).slots, limits(0, 0).prefill_window), (0, Tokens::ZERO), "never more than configured");
    }

    #[test]
    fn the_switch_and_the_note() {
        let config = config(8, 16_384, KvDtype::F16);
        let off = Ladder::disabled().limits(Critical, &config);
        assert_eq!((off.limits, off.degraded()), (config, false));
        assert_eq!(off.to_string(), "critical: as configured");
        assert_eq!(Ladder::default().limits(Watch, &config).to_string(), "watch: new KV f16 -> q4_0");
    }

    #[test]
    fn rungs_that_are_no_ladder_are_refused() {
        let rungs =
            Rungs { kv_at: Ok, slots_divisor: 0, window_divisor: 8, window_divisor_critical: 4, ..Rungs::default() };
        assert_eq!(
            Ladder::new(rungs),
            Err(vec![BadRungs::AtOk("kv_at"), BadRungs::Zero("slots_divisor"), BadRungs::Relaxes])
        );
        assert_eq!(Ladder::new(Rungs::default()), Result::Ok(Ladder::default()));
    }

    fn level() -> impl Strategy<Value = Level> {
        prop::sample::select(Level::ALL.to_vec())
    }

    fn dtype() -> impl Strategy<Value = KvDtype> {
        prop::sample::select(KvDtype::ALL.to_vec())
    }

    fn any_config() -> impl Strategy<Value = ServeLimits> {
        (any::<u32>(), any::<u64>(), dtype(), any::<bool>()).prop_map(|(slots, window, kv, evict_cached)| ServeLimits {
            slots,
            prefill_window: Tokens::new(window),
            kv,
            evict_cached,
        })
    }

    fn any_rungs() -> impl Strategy<Value = Rungs> {
        let levels = (level(), level(), level(), level());
        (levels, dtype(), 0u32..9, 0u32..9, 0u32..9, 0u32..9).prop_map(|(levels, kv_to, by, left, window, critical)| {
            Rungs {
                kv_at: levels.0,
                kv_to,
                slots_at: levels.1,
                slots_divisor: by,
                slots_critical: left,
                window_at: levels.2,
                window_divisor: window,
                window_divisor_critical: critical,
                evict_at: levels.3,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_only_reduces_and_never_relaxes(
            rungs in any_rungs(), config in any_config(), one in level(), two in level(),
        ) {
            let Result::Ok(ladder) = Ladder::new(rungs) else { return Result::Ok(()) };
            let (low, high) = (ladder.limits(one.min(two), &config).limits, ladder.limits(one.max(two), &config).limits);
            for (more, less) in [(&config, &low), (&low, &high)] {
                prop_assert!(less.slots <= more.slots && less.prefill_window <= more.prefill_window);
                prop_assert!(less.kv.bytes_of_32() <= more.kv.bytes_of_32());
                prop_assert!(less.evict_cached >= more.evict_cached);
            }
            prop_assert!(high.slots >= config.slots.min(1), "one slot stays");
            prop_assert_eq!(ladder.limits(Ok, &config).limits, config, "nothing at OK");
            prop_assert_eq!(ladder.limits(one, &config), ladder.limits(one, &config));
        }
    }
}
