//! What the emulated device is, by the environment.

use std::env;

/// Of what size a physical allocation is a multiple, in bytes: as on every device so far.
pub(super) const GRANULE: u64 = 2 << 20;
/// What a context takes of the device's memory, in bytes.
pub(super) const CONTEXT_BYTES: u64 = 64 << 20;
/// Shared memory that a block gets without asking, and with, in bytes.
pub(super) const SHARED: u32 = 48 << 10;
/// The most threads of a block.
pub(super) const MOST_THREADS: u32 = 1024;

/// The device and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Major, minor.
    pub(super) capability: (u32, u32),
    /// Device memory, in bytes.
    pub(super) memory: u64,
    pub(super) multiprocessors: u32,
    /// One, or none.
    pub(super) devices: u32,
    /// The CUDA version of the driver: 13000 is 13.0.
    pub(super) cuda: i32,
    /// Whether fresh device memory is filled with a pattern instead of zeros.
    pub(super) poison: bool,
}

impl Settings {
    /// By the environment; what is not understood is an error in words.
    pub(super) fn read() -> Result<Self, String> {
        Self::of(&|name| env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str, default: u64| match variable(name) {
            None => Ok(default),
            Some(text) => text.trim().parse().map_err(|_| format!("{name}={text} is no number")),
        };
        let capability = variable("MEMTIER_EMULATED_CAPABILITY").unwrap_or_else(|| "12.0".to_owned());
        let parts =
            capability.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        Ok(Settings {
            capability: parts
                .ok_or_else(|| format!("MEMTIER_EMULATED_CAPABILITY={capability} is not like 12.0 or 9.0"))?,
            memory: number("MEMTIER_EMULATED_MEMORY_MIB", 16_384)?.saturating_mul(1 << 20),
            multiprocessors: u32::try_from(number("MEMTIER_EMULATED_MULTIPROCESSORS", 4)?.clamp(1, 1024)).unwrap_or(4),
            devices: u32::from(number("MEMTIER_EMULATED_DEVICES", 1)? > 0),
            cuda: i32::try_from(number("MEMTIER_EMULATED_CUDA", 13000)?).unwrap_or(13000),
            poison: number("MEMTIER_EMULATED_POISON", 0)? > 0,
        })
    }

    /// The most shared memory of a block, in bytes, as devices of that capability have it.
    pub(super) fn most_shared(&self) -> u32 {
        match self.capability {
            (9 | 10, _) => 227 << 10,
            _ => 99 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_the_device_is() {
        let none = Settings::of(&|_| None).unwrap();
        assert_eq!((none.capability, none.memory, none.devices), ((12, 0), 16 << 30, 1));
        let hopper = |name: &str| match name {
            "MEMTIER_EMULATED_CAPABILITY" => Some("9.0".to_owned()),
            "MEMTIER_EMULATED_MEMORY_MIB" => Some("512".to_owned()),
            "MEMTIER_EMULATED_DEVICES" => Some("0".to_owned()),
            _ => None,
        };
        let hopper = Settings::of(&hopper).unwrap();
        assert_eq!((hopper.capability, hopper.memory, hopper.devices), ((9, 0), 512 << 20, 0));
        assert_eq!(hopper.most_shared(), 232_448);
        let wrong = Settings::of(&|_| Some("many".to_owned())).unwrap_err();
        assert!(wrong.contains("MEMTIER_EMULATED"), "{wrong}");
    }
}
