//! Everything the watcher knows at one moment, as a value.

use std::{fmt, time::Duration};

use super::{
    level::Level,
    reading::{CgroupReading, DEVICES, DeviceReading, Devices, HostReading, Percent, Psi},
    seqlock::Words,
    thresholds::Thresholds,
};
use crate::units::Bytes;

/// Words before the devices.
const HEAD: usize = 9;
/// Words of one device.
const EACH: usize = 3;
/// Words of a snapshot.
pub(super) const WORDS: usize = HEAD + EACH * DEVICES;

const HAS_HOST: u64 = 1 << 2;
const HAS_PSI: u64 = 1 << 3;
const HAS_CGROUP: u64 = 1 << 4;
const HAS_HIGH: u64 = 1 << 5;
const HAS_MAX: u64 = 1 << 6;
/// Which devices were fed, one bit each.
const FED: u32 = 16;
const DEPTH: u32 = 32;

/// Memory at one moment: a copy, which nobody changes. Two decisions from one snapshot see the same numbers. `Display` is a
/// line for the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// The worst level of everything below.
    pub level: Level,
    /// Its number: how often something was published before. Zero: nothing was read yet.
    pub seq: u64,
    /// When it was published, since the watcher was made, in whole milliseconds.
    pub at: Duration,
    /// Host memory; `None` where it cannot be read, which is no pressure.
    pub host: Option<HostReading>,
    /// Stalls, the worse of the machine's and the own cgroup's; `None` where the kernel does not count them.
    pub psi: Option<Psi>,
    /// The tightest cgroup from the own one up; `None` when none has a limit.
    pub cgroup: Option<CgroupReading>,
    /// What was fed for each device.
    pub devices: Devices,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.level.name())?;
        if let Some(HostReading { total, available }) = self.host {
            write!(f, ", host {} of {} MiB available", available.count() >> 20, total.in_mib())?;
        }
        if let Some(Psi { some, full }) = self.psi {
            write!(f, ", stalled some {some} full {full}")?;
        }
        if let Some((available, limit)) = self.cgroup.and_then(|group| group.available().zip(group.limit())) {
            write!(f, ", cgroup {} of {} MiB available", available.count() >> 20, limit.in_mib())?;
        }
        for (index, DeviceReading { free, budget, .. }) in self.devices.iter() {
            write!(f, ", device {index} {} of {} MiB free", free.count() >> 20, budget.in_mib())?;
        }
        Ok(())
    }
}

impl Snapshot {
    /// What is left above the reserves on the host, in the machine or below a cgroup's limit, whichever is less; `None` when
    /// neither is known.
    pub fn host_headroom(&self, t: &Thresholds) -> Option<Bytes> {
        let machine = self.host.map(|host| host.available.beyond(t.host_reserve(host.total)));
        self.cgroup_headroom(t).into_iter().chain(machine).min()
    }

    /// What there would be above the reserves if nothing else ran: no request that costs more can ever run.
    pub fn host_capacity(&self, t: &Thresholds) -> Option<Bytes> {
        let machine = self.host.map(|host| host.total.beyond(t.host_reserve(host.total)));
        let limit = self.cgroup.and_then(|group| group.limit());
        limit.map(|limit| limit.beyond(t.cgroup_reserve(limit))).into_iter().chain(machine).min()
    }

    fn cgroup_headroom(&self, t: &Thresholds) -> Option<Bytes> {
        let group = self.cgroup?;
        Some(group.available()?.beyond(t.cgroup_reserve(group.limit()?)))
    }

    /// The fed device with the least free memory, and its number. Devices without a budget are skipped.
    pub fn fullest_device(&self) -> Option<(usize, DeviceReading)> {
        self.devices.iter().filter(|(_, device)| !device.budget.is_zero()).min_by_key(|(_, device)| device.free)
    }

    /// As words, and how many of them are in use.
    pub(super) fn encode(&self) -> ([u64; WORDS], usize) {
        let mut words = [0; WORDS];
        let mut used = HEAD;
        let mut flags = self.level as u64;
        if let Some(host) = self.host {
            flags |= HAS_HOST;
            (words[2], words[3]) = (host.total.count(), host.available.count());
        }
        if let Some(psi) = self.psi {
            flags |= HAS_PSI;
            words[1] = u64::from(psi.some.in_hundredths()) | (u64::from(psi.full.in_hundredths()) << 32);
        }
        if let Some(group) = self.cgroup {
            flags |= HAS_CGROUP | (u64::from(group.depth) << DEPTH);
            flags |= if group.high.is_some() { HAS_HIGH } else { 0 } | if group.max.is_some() { HAS_MAX } else { 0 };
            (words[4], words[5]) = (group.current.count(), group.reclaimable.count());
            words[6] = group.high.map_or(0, Bytes::count);
            words[7] = group.max.map_or(0, Bytes::count);
        }
        words[8] = u64::try_from(self.at.as_millis()).unwrap_or(u64::MAX);
        flags |= u64::from(self.devices.fed()) << FED;
        for (index, DeviceReading { free, budget, used: ours }) in self.devices.iter() {
            let at = HEAD + EACH * index;
            (words[at], words[at + 1], words[at + 2]) = (free.count(), budget.count(), ours.count());
            used = at + EACH;
        }
        words[0] = flags;
        (words, used)
    }

    /// From words, of which it only looks at those in use. Copes with any.
    #[inline(always)]
    pub(super) fn decode(words: Words<'_>, seq: u64) -> Self {
        let bytes = |index| Bytes::new(words.at(index));
        let flags = words.at(0);
        let has = |bit: u64| flags & bit != 0;
        let stalls = words.at(1);
        let devices = Devices::of((flags >> FED) as u16, |index| {
            let at = HEAD + EACH * index;
            DeviceReading { free: bytes(at), budget: bytes(at + 1), used: bytes(at + 2) }
        });
        Snapshot {
            level: level_of(flags),
            seq,
            at: Duration::from_millis(words.at(8)),
            host: has(HAS_HOST).then(|| HostReading { total: bytes(2), available: bytes(3) }),
            psi: has(HAS_PSI).then(|| Psi {
                some: Percent::hundredths(stalls as u32),
                full: Percent::hundredths((stalls >> 32) as u32),
            }),
            cgroup: has(HAS_CGROUP).then(|| CgroupReading {
                current: bytes(4),
                reclaimable: bytes(5),
                high: has(HAS_HIGH).then(|| bytes(6)),
                max: has(HAS_MAX).then(|| bytes(7)),
                depth: (flags >> DEPTH) as u32,
            }),
            devices,
        }
    }
}

/// The level in a snapshot's first word.
#[inline]
pub(super) fn level_of(flags: u64) -> Level {
    match flags & 3 {
        0 => Level::Ok,
        1 => Level::Watch,
        2 => Level::Tight,
        _ => Level::Critical,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pressure::seqlock::SeqLock;

    fn bytes() -> impl Strategy<Value = Bytes> {
        any::<u64>().prop_map(Bytes::new)
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        let host = (bytes(), bytes()).prop_map(|(total, available)| HostReading { total, available });
        let percent = || any::<u32>().prop_map(Percent::hundredths);
        let psi = (percent(), percent()).prop_map(|(some, full)| Psi { some, full });
        let limits = (prop::option::of(bytes()), prop::option::of(bytes()));
        let cgroup = (bytes(), bytes(), limits, any::<u32>()).prop_map(|(current, reclaimable, (high, max), depth)| {
            CgroupReading { current, reclaimable, high, max, depth }
        });
        let device = (bytes(), bytes(), bytes()).prop_map(|(free, budget, used)| DeviceReading { free, budget, used });
        let devices = prop::collection::vec(prop::option::of(device), DEVICES);
        let (host, psi, cgroup) = (prop::option::of(host), prop::option::of(psi), prop::option::of(cgroup));
        (0usize..4, any::<u32>(), host, psi, cgroup, devices).prop_map(|(level, at, host, psi, cgroup, devices)| {
            let at = Duration::from_millis(u64::from(at));
            let mut all = Devices::default();
            for (index, reading) in devices.into_iter().enumerate().filter_map(|(at, reading)| Some((at, reading?))) {
                all.feed(index, reading).unwrap();
            }
            let devices = all;
            Snapshot { level: Level::ALL[level], seq: 1, at, host, psi, cgroup, devices }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(snapshot in snapshot(), before in snapshot()) {
            let lock = SeqLock::new(before.encode().0);
            let (words, used) = snapshot.encode();
            lock.write(&words[..used]);
            prop_assert_eq!(lock.read(Snapshot::decode), snapshot);
            prop_assert_eq!(level_of(lock.peek(0)), snapshot.level);
        }

        #[test]
        fn headroom_is_never_more_than_capacity(mut snapshot in snapshot()) {
            if let Some(host) = &mut snapshot.host {
                host.available = host.available.min(host.total);
            }
            let t = Thresholds::default();
            prop_assert!(snapshot.host_headroom(&t) <= snapshot.host_capacity(&t));
        }
    }

    #[test]
    fn the_tighter_of_machine_and_cgroup_counts() {
        let t = Thresholds::default();
        let host = Some(HostReading { total: Bytes::gib(20), available: Bytes::gib(10) });
        let group = CgroupReading { current: Bytes::gib(1), max: Some(Bytes::gib(4)), ..CgroupReading::default() };
        let free = Snapshot { host, ..Snapshot::default() };
        let grouped = Snapshot { cgroup: Some(group), ..free };
        assert_eq!(free.host_headroom(&t), Some(Bytes::gib(7)));
        assert_eq!(grouped.host_headroom(&t), Some(Bytes::new((3 << 30) - (4u64 << 30) * 15 / 100)));
        assert_eq!(Snapshot::default().host_headroom(&t), None);
    }

    #[test]
    fn a_snapshot_is_a_line_for_the_log() {
        assert_eq!(Snapshot::default().to_string(), "ok");
        let mut snapshot = Snapshot { level: Level::Tight, psi: Some(Psi::default()), ..Snapshot::default() };
        snapshot.host = Some(HostReading { total: Bytes::gib(8), available: Bytes::mib(1400) });
        let reading = DeviceReading { free: Bytes::mib(900), budget: Bytes::gib(11), used: Bytes::ZERO };
        snapshot.devices.feed(1, reading).unwrap();
        assert_eq!(
            snapshot.to_string(),
            "tight, host 1400 of 8192 MiB available, stalled some 0.00 % full 0.00 %, device 1 900 of 11264 MiB free"
        );
    }

    #[test]
    fn the_fullest_device_is_the_one_with_least_free() {
        let device =
            |free, budget| DeviceReading { free: Bytes::new(free), budget: Bytes::new(budget), used: Bytes::ZERO };
        let mut snapshot = Snapshot::default();
        assert_eq!(snapshot.fullest_device(), None);
        for (index, reading) in [(2, device(7, 10)), (5, device(5, 100)), (9, device(0, 0))] {
            snapshot.devices.feed(index, reading).unwrap();
        }
        assert_eq!(snapshot.fullest_device().map(|(index, _)| index), Some(5));
    }
}
