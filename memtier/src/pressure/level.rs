//! Four levels, and the thresholds between them.

use std::{fmt, str::FromStr};

use super::{
    reading::{CgroupReading, DeviceReading, HostReading, Percent, Psi},
    thresholds::Thresholds,
};
use crate::units::Bytes;

/// How tight memory is. Ordered: more is tighter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(u8)]
pub enum Level {
    /// Ample headroom.
    #[default]
    Ok = 0,
    /// Headroom is shrinking.
    Watch = 1,
    /// The reserve is nearly reached, or tasks stall on memory.
    Tight = 2,
    /// At the reserve, or the machine stands still: shed work.
    Critical = 3,
}

impl Level {
    /// All, from [`Ok`](Level::Ok) up.
    pub const ALL: [Level; 4] = [Level::Ok, Level::Watch, Level::Tight, Level::Critical];

    /// The spelling people type and read.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Watch => "watch",
            Level::Tight => "tight",
            Level::Critical => "critical",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A spelling that names no level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no level; known are ok, watch, tight, critical")]
pub struct UnknownLevel(pub String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Level::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

/// The level of an amount of available memory above a reserve: at the reserve [`Critical`](Level::Critical), less than a
/// part of it above [`Tight`](Level::Tight), then [`Watch`](Level::Watch).
fn above_reserve(available: Bytes, reserve: Bytes, t: &Thresholds) -> Level {
    let slack = available.beyond(reserve).count();
    let part = |divisor: u32| reserve.count() / u64::from(divisor.max(1));
    match slack {
        0 => Level::Critical,
        slack if slack < part(t.host_tight_divisor) => Level::Tight,
        slack if slack < part(t.host_watch_divisor) => Level::Watch,
        _ => Level::Ok,
    }
}

/// The level of host memory.
pub fn host_level(host: &HostReading, t: &Thresholds) -> Level {
    above_reserve(host.available, t.host_reserve(host.total), t)
}

/// The level of the tightest cgroup. A group without a limit is no pressure.
pub fn cgroup_level(group: &CgroupReading, t: &Thresholds) -> Level {
    match (group.limit(), group.available()) {
        (Some(limit), Some(available)) => above_reserve(available, t.cgroup_reserve(limit), t),
        _ => Level::Ok,
    }
}

/// The level of stalls. Only escalates: no stall says nothing about headroom.
///
/// The averages decay over about a minute, so the burst of a model load leaves a little `full` behind on a machine that has
/// long recovered. That is [`Tight`](Level::Tight), which refuses nobody; [`Critical`](Level::Critical) takes a stall that
/// lasts.
pub fn psi_level(psi: &Psi, t: &Thresholds) -> Level {
    if psi.full >= t.psi_full_critical {
        Level::Critical
    } else if psi.full > t.psi_full_tight_above || psi.some >= t.psi_some_tight {
        Level::Tight
    } else if psi.some > t.psi_some_watch_above {
        Level::Watch
    } else {
        Level::Ok
    }
}

/// The level of one device. A device without a budget is skipped.
pub fn device_level(device: &DeviceReading, t: &Thresholds) -> Level {
    let part = |divisor: u32| device.budget.count() / u64::from(divisor.max(1));
    match device.free.count() {
        _ if device.budget.is_zero() => Level::Ok,
        0 => Level::Critical,
        free if free < part(t.device_tight_divisor) => Level::Tight,
        free if free < part(t.device_watch_divisor) => Level::Watch,
        _ => Level::Ok,
    }
}

/// The worst level of everything that was read.
pub fn derive_level(
    host: Option<&HostReading>,
    psi: Option<&Psi>,
    cgroup: Option<&CgroupReading>,
    devices: impl IntoIterator<Item = DeviceReading>,
    t: &Thresholds,
) -> Level {
    let host = host.map_or(Level::Ok, |host| host_level(host, t));
    let psi = psi.map_or(Level::Ok, |psi| psi_level(psi, t));
    let cgroup = cgroup.map_or(Level::Ok, |group| cgroup_level(group, t));
    devices.into_iter().map(|device| device_level(&device, t)).fold(host.max(psi).max(cgroup), Level::max)
}

/// Whether a machine stalls on memory so long that a new request only makes it worse.
pub fn is_stalled(full: Percent, t: &Thresholds) -> bool {
    full >= t.psi_full_critical
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Level::{Critical, Ok, Tight, Watch};

    const GIB: u64 = 1 << 30;

    #[test]
    fn every_host_row_of_the_table() {
        // 40 GiB: 15 % are 6 GiB of reserve.
        let reserve = 6 * GIB;
        let table = [
            (0, Critical),
            (reserve - 1, Critical),
            (reserve, Critical),
            (reserve + 1, Tight),
            (reserve + reserve / 4 - 1, Tight),
            (reserve + reserve / 4, Watch),
            (2 * reserve - 1, Watch),
            (2 * reserve, Ok),
            (40 * GIB, Ok),
        ];
        for (available, level) in table {
            let host = HostReading { total: Bytes::gib(40), available: Bytes::new(available) };
            assert_eq!(host_level(&host, &Thresholds::default()), level, "{available}");
        }
    }

    #[test]
    fn the_reserve_is_15_percent_and_at_least_1_gib() {
        let t = Thresholds::default();
        assert_eq!(t.host_reserve(Bytes::gib(4)), Bytes::gib(1));
        assert_eq!(t.host_reserve(Bytes::gib(8)), Bytes::new(8 * GIB * 15 / 100));
        assert_eq!(t.host_reserve(Bytes::MAX), Bytes::new((u128::from(u64::MAX) * 15 / 100) as u64));
        // The 8 GiB machine: about 1.2 GiB are the reserve, and 1.1 GiB of slack are watched, not refused.
        let host = HostReading { total: Bytes::gib(8), available: Bytes::mib(1229 + 1126) };
        assert_eq!(host_level(&host, &t), Watch);
        let set = Thresholds { host_reserve: Some(Bytes::mib(100)), ..t };
        assert_eq!(set.host_reserve(Bytes::gib(8)), Bytes::mib(100));
    }

    #[test]
    fn every_stall_row_of_the_table() {
        let table = [
            (0, 0, Ok),
            (1, 0, Watch),
            (999, 0, Watch),
            (1000, 0, Tight),
            (10_000, 0, Tight),
            (0, 1, Tight),
            (0, 1499, Tight),
            (0, 1500, Critical),
            (10_000, 10_000, Critical),
        ];
        for (some, full, level) in table {
            let psi = Psi { some: Percent::hundredths(some), full: Percent::hundredths(full) };
            assert_eq!(psi_level(&psi, &Thresholds::default()), level, "some {some} full {full}");
        }
    }

    #[test]
    fn every_device_row_of_the_table() {
        let budget = 32 * GIB;
        let table = [
            (0, Critical),
            (1, Tight),
            (budget / 16 - 1, Tight),
            (budget / 16, Watch),
            (budget / 8 - 1, Watch),
            (budget / 8, Ok),
            (budget, Ok),
        ];
        for (free, level) in table {
            let device = DeviceReading { free: Bytes::new(free), budget: Bytes::new(budget), used: Bytes::ZERO };
            assert_eq!(device_level(&device, &Thresholds::default()), level, "{free}");
        }
        let skipped = DeviceReading { free: Bytes::ZERO, budget: Bytes::ZERO, used: Bytes::ZERO };
        assert_eq!(device_level(&skipped, &Thresholds::default()), Ok);
    }

    #[test]
    fn the_worst_of_all_counts() {
        let t = Thresholds::default();
        let host = HostReading { total: Bytes::gib(40), available: Bytes::gib(30) };
        let device = |mib| DeviceReading { free: Bytes::mib(mib), budget: Bytes::gib(16), used: Bytes::ZERO };
        assert_eq!(derive_level(Some(&host), None, None, [], &t), Ok);
        assert_eq!(derive_level(Some(&host), None, None, [device(8000), device(2000)], &t), Watch);
        assert_eq!(derive_level(Some(&host), None, None, [device(8000), device(0)], &t), Critical);
        assert_eq!(derive_level(None, None, None, [], &t), Ok, "nothing read is no pressure");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn less_memory_is_never_a_lower_level(total in any::<u64>(), one in any::<u64>(), two in any::<u64>()) {
            let t = Thresholds::default();
            let (less, more) = (one.min(two), one.max(two));
            let host = |available| HostReading { total: Bytes::new(total), available: Bytes::new(available) };
            prop_assert!(host_level(&host(less), &t) >= host_level(&host(more), &t));
            let device = |free| DeviceReading { free: Bytes::new(free), budget: Bytes::new(total), used: Bytes::ZERO };
            prop_assert!(device_level(&device(less), &t) >= device_level(&device(more), &t));
        }

        #[test]
        fn more_stall_is_never_a_lower_level(some in 0u32..10_000, full in 0u32..10_000, more in 0u32..10_000) {
            let t = Thresholds::default();
            let psi = |some, full| Psi { some: Percent::hundredths(some), full: Percent::hundredths(full) };
            prop_assert!(psi_level(&psi(some + more, full), &t) >= psi_level(&psi(some, full), &t));
            prop_assert!(psi_level(&psi(some, full + more), &t) >= psi_level(&psi(some, full), &t));
        }
    }
}
