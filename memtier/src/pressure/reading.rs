//! What the watcher reads: plain values.

use std::{fmt, str::FromStr};

use crate::units::Bytes;

/// A share in hundredths of a percent, which is as fine as the kernel reports stalls. No floats: thresholds are compared
/// exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Percent(u32);

impl Percent {
    /// `count` hundredths of a percent.
    pub const fn hundredths(count: u32) -> Self {
        Percent(count)
    }

    /// `count` whole percent.
    pub const fn whole(count: u8) -> Self {
        Percent(count as u32 * 100)
    }

    /// In hundredths of a percent.
    pub const fn in_hundredths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 100, self.0 % 100)
    }
}

/// A text that is no share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no percentage: write 0 to 100 with at most two decimals")]
pub struct BadPercent(pub String);

impl FromStr for Percent {
    type Err = BadPercent;

    fn from_str(text: &str) -> Result<Self, BadPercent> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str, most: usize| {
            let fine = (1..=most).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_digit());
            fine.then(|| part.parse::<u32>().ok()).flatten()
        };
        let hundredths = digits(whole, 3).zip(digits(fraction, 2)).map(|(whole, part)| {
            let part = if fraction.len() == 1 { part * 10 } else { part };
            whole * 100 + part
        });
        hundredths.filter(|value| *value <= 10_000).map(Percent).ok_or_else(|| BadPercent(text.to_owned()))
    }
}

/// Host memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostReading {
    /// All of it.
    pub total: Bytes,
    /// What can be allocated without swapping.
    pub available: Bytes,
}

/// Stalls on memory over the last ten seconds: the share of time in which some, or all, tasks stood still.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Psi {
    /// Some task stood still.
    pub some: Percent,
    /// All tasks stood still.
    pub full: Percent,
}

/// A control group, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CgroupReading {
    /// What it is charged.
    pub current: Bytes,
    /// What of that is file cache that nobody used lately: the kernel takes it back before it throttles or kills. Without
    /// it, reading a model file would look like pressure.
    pub reclaimable: Bytes,
    /// Above this the kernel throttles it; `None` without a limit.
    pub high: Option<Bytes>,
    /// Above this the kernel kills in it; `None` without a limit.
    pub max: Option<Bytes>,
    /// How many groups are above it.
    pub depth: u32,
}

impl CgroupReading {
    /// The lower of its two limits.
    pub fn limit(&self) -> Option<Bytes> {
        self.high.into_iter().chain(self.max).min()
    }

    /// What is left below the limit.
    pub fn available(&self) -> Option<Bytes> {
        Some(self.limit()?.beyond(self.current.beyond(self.reclaimable)))
    }
}

/// One device's memory, from whoever owns the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceReading {
    /// What the driver says is free.
    pub free: Bytes,
    /// What may be used: the device's memory when nothing was loaded, less a reserve, see
    /// [`Thresholds::device_budget`](super::Thresholds::device_budget). Zero: the device is skipped.
    pub budget: Bytes,
    /// What the engine's own books say it uses.
    pub used: Bytes,
}

/// How many devices a snapshot has room for: as many as one host is built with.
pub const DEVICES: usize = 16;

/// What was fed for each device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Devices {
    /// One bit for each device that was fed: half the size of options, and a snapshot is copied often.
    fed: u16,
    /// Zero where nothing was fed.
    readings: [DeviceReading; DEVICES],
}

/// A device number that a snapshot has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("device {0}: a snapshot has room for devices 0 to 15")]
pub struct NoSuchDevice(pub usize);

impl Devices {
    /// The reading of one device, if it was fed.
    pub fn get(&self, device: usize) -> Option<DeviceReading> {
        let reading = self.readings.get(device)?;
        (self.fed & (1 << device) != 0).then_some(*reading)
    }

    /// Every device that was fed, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, DeviceReading)> {
        (0..DEVICES).filter_map(|device| Some((device, self.get(device)?)))
    }

    /// Feeds one device.
    ///
    /// # Errors
    /// [`NoSuchDevice`] above 15.
    pub fn feed(&mut self, device: usize, reading: DeviceReading) -> Result<(), NoSuchDevice> {
        *self.readings.get_mut(device).ok_or(NoSuchDevice(device))? = reading;
        self.fed |= 1 << device;
        Ok(())
    }

    /// The devices of `fed`, each with its reading.
    #[inline(always)]
    pub(super) fn of(fed: u16, reading: impl Fn(usize) -> DeviceReading) -> Self {
        let mut devices = Devices { fed, ..Devices::default() };
        let mut left = fed;
        while left != 0 {
            let device = left.trailing_zeros() as usize;
            left &= left - 1;
            // A bit of sixteen: the remainder is itself, and there is no check.
            devices.readings[device % DEVICES] = reading(device);
        }
        devices
    }

    /// One bit for each device that was fed.
    pub(super) fn fed(&self) -> u16 {
        self.fed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact() {
        for (text, hundredths) in [("0", 0), ("0.00", 0), ("0.07", 7), ("15", 1500), ("12.3", 1230), ("100.00", 10_000)]
        {
            assert_eq!(text.parse(), Ok(Percent(hundredths)), "{text}");
        }
        for wrong in ["", "-1", "100.01", "101", "1.234", ".5", "5.", "1,5", "15%", "nan", "inf", "1e1", "٣"] {
            assert_eq!(wrong.parse::<Percent>(), Err(BadPercent(wrong.into())), "{wrong}");
        }
        assert_eq!(Percent(1503).to_string(), "15.03 %");
    }

    #[test]
    fn the_lower_limit_counts_and_cache_does_not() {
        let group = CgroupReading {
            current: Bytes::mib(900),
            reclaimable: Bytes::mib(300),
            high: Some(Bytes::mib(800)),
            max: Some(Bytes::mib(1000)),
            depth: 2,
        };
        assert_eq!((group.limit(), group.available()), (Some(Bytes::mib(800)), Some(Bytes::mib(200))));
        assert_eq!(CgroupReading { high: None, ..group }.available(), Some(Bytes::mib(400)));
        assert_eq!(CgroupReading { high: None, max: None, ..group }.available(), None);
        assert_eq!(CgroupReading { current: Bytes::gib(2), ..group }.available(), Some(Bytes::ZERO));
    }
}
