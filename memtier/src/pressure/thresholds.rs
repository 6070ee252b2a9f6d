//! Where one level ends and the next begins.

use super::reading::Percent;
use crate::units::Bytes;

/// The thresholds between levels. The defaults are those of a server that runs a Qwen3.5 mixture-of-experts model on K80
/// devices beside 8 GiB of host memory, where TIGHT at rest is normal and refuses nobody; every one can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// The host memory that is not for us, instead of the two values below. Default: not set.
    pub host_reserve: Option<Bytes>,
    /// The reserve is at least so much. Default: 1 GiB.
    pub host_reserve_min: Bytes,
    /// The reserve is such a share of all host memory, in percent. Default: 15.
    pub host_reserve_percent: u8,
    /// TIGHT below reserve / this above the reserve. Default: 4.
    pub host_tight_divisor: u32,
    /// WATCH below reserve / this above the reserve. Default: 1.
    pub host_watch_divisor: u32,
    /// The reserve below a cgroup's limit is at least so much. Default: 64 MiB. Ours: a group of 1 GiB would be CRITICAL for
    /// ever under the host's 1 GiB.
    pub cgroup_reserve_min: Bytes,
    /// The reserve below a cgroup's limit is such a share of the limit, in percent. Default: 15, the host's.
    pub cgroup_reserve_percent: u8,
    /// CRITICAL, and no new requests, from this share of time in which every task stalls. Default: 15 %.
    pub psi_full_critical: Percent,
    /// TIGHT above this share of time in which every task stalls. Default: 0.
    pub psi_full_tight_above: Percent,
    /// TIGHT from this share of time in which some task stalls. Default: 10 %.
    pub psi_some_tight: Percent,
    /// WATCH above this share of time in which some task stalls. Default: 0.
    pub psi_some_watch_above: Percent,
    /// The device memory that is not for us. Default: 1 GiB.
    pub device_reserve: Bytes,
    /// TIGHT below budget / this free on a device. Default: 16.
    pub device_tight_divisor: u32,
    /// WATCH below budget / this free on a device. Default: 8.
    pub device_watch_divisor: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            host_reserve: None,
            host_reserve_min: Bytes::gib(1),
            host_reserve_percent: 15,
            host_tight_divisor: 4,
            host_watch_divisor: 1,
            cgroup_reserve_min: Bytes::mib(64),
            cgroup_reserve_percent: 15,
            psi_full_critical: Percent::whole(15),
            psi_full_tight_above: Percent::whole(0),
            psi_some_tight: Percent::whole(10),
            psi_some_watch_above: Percent::whole(0),
            device_reserve: Bytes::gib(1),
            device_tight_divisor: 16,
            device_watch_divisor: 8,
        }
    }
}

/// Thresholds that contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadThresholds {
    /// A share above 100.
    #[error("{name} is {percent} %: a share is at most 100")]
    Share {
        /// Which.
        name: &'static str,
        /// Its value.
        percent: u8,
    },
    /// A division by zero.
    #[error("{name} is 0: a part of the reserve or budget needs a divisor of at least 1")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// A higher level would begin before a lower one.
    #[error("{lower} begins after {higher}: the level would skip, or fall while memory shrinks")]
    Order {
        /// The lower level's threshold.
        lower: &'static str,
        /// The higher level's threshold.
        higher: &'static str,
    },
}

impl Thresholds {
    /// Whether they make sense together.
    ///
    /// # Errors
    /// Every contradiction, not only the first.
    pub fn check(&self) -> Result<(), Vec<BadThresholds>> {
        let mut errors = Vec::new();
        for (name, percent) in [
            ("host_reserve_percent", self.host_reserve_percent),
            ("cgroup_reserve_percent", self.cgroup_reserve_percent),
        ] {
            if percent > 100 {
                errors.push(BadThresholds::Share { name, percent });
            }
        }
        for (name, divisor) in [
            ("host_tight_divisor", self.host_tight_divisor),
            ("host_watch_divisor", self.host_watch_divisor),
            ("device_tight_divisor", self.device_tight_divisor),
            ("device_watch_divisor", self.device_watch_divisor),
        ] {
            if divisor == 0 {
                errors.push(BadThresholds::Zero { name });
            }
        }
        let ordered = [
            (self.host_watch_divisor <= self.host_tight_divisor, "host_watch_divisor", "host_tight_divisor"),
            (self.device_watch_divisor <= self.device_tight_divisor, "device_watch_divisor", "device_tight_divisor"),
            (self.psi_full_tight_above < self.psi_full_critical, "psi_full_tight_above", "psi_full_critical"),
            (self.psi_some_watch_above < self.psi_some_tight, "psi_some_watch_above", "psi_some_tight"),
        ];
        let wrong = ordered.into_iter().filter(|(fine, ..)| !fine);
        errors.extend(wrong.map(|(_, lower, higher)| BadThresholds::Order { lower, higher }));
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The host memory that is not for us, of `total`.
    pub fn host_reserve(&self, total: Bytes) -> Bytes {
        self.host_reserve.unwrap_or_else(|| self.host_reserve_min.max(share(total, self.host_reserve_percent)))
    }

    /// The memory below a cgroup's `limit` that is not for us.
    pub fn cgroup_reserve(&self, limit: Bytes) -> Bytes {
        self.cgroup_reserve_min.max(share(limit, self.cgroup_reserve_percent))
    }

    /// What may be used of a device that had `total` free before anything was loaded.
    pub fn device_budget(&self, total: Bytes) -> Bytes {
        total.beyond(self.device_reserve)
    }
}

fn share(of: Bytes, percent: u8) -> Bytes {
    let share = u128::from(of.count()) * u128::from(percent) / 100;
    Bytes::new(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense() {
        assert_eq!(Thresholds::default().check(), Ok(()));
        assert_eq!(Thresholds::default().device_budget(Bytes::gib(12)), Bytes::gib(11));
        assert_eq!(Thresholds::default().device_budget(Bytes::mib(12)), Bytes::ZERO);
    }

    #[test]
    fn every_contradiction_is_named() {
        let bad = Thresholds {
            host_reserve_percent: 101,
            cgroup_reserve_percent: 255,
            host_tight_divisor: 0,
            device_watch_divisor: 32,
            psi_full_critical: Percent::whole(0),
            psi_some_watch_above: Percent::whole(10),
            ..Thresholds::default()
        };
        let errors: Vec<_> = bad.check().unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 7, "{errors:?}");
        assert!(errors[0].starts_with("host_reserve_percent is 101 %"));
        assert!(errors[6].starts_with("psi_some_watch_above begins after psi_some_tight"));
    }
}
