//! Cards: what they have, and what is gone before an engine asks for anything.

use std::process::Command;

use memtier::Bytes;
use memtier::plan::{Limits, ReserveSource};

use crate::suggest::{did_you_mean, nearest};

/// The space of device memory in plans.
pub const SPACE: &str = "cuda";

/// A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name, without the vendor's.
    pub name: &'static str,
    /// MiB that `nvidia-smi` reports as `memory.total`. Less than what is on the box where ECC or the driver takes some.
    pub total_mib: u64,
    /// MiB that a process under Linux sees as total (`cudaMemGetInfo`), where somebody has looked: the driver keeps the
    /// rest for itself. Under Windows a process sees all of it.
    pub usable_mib: Option<u64>,
}

impl Card {
    /// What a process sees: as somebody saw it, or a fiftieth less than the total, which is more than any card seen
    /// keeps.
    pub const fn usable(&self, platform: Platform) -> u64 {
        match (platform, self.usable_mib) {
            (Platform::Windows, _) => self.total_mib,
            (Platform::Linux, Some(usable)) => usable,
            (Platform::Linux, None) => self.total_mib - self.total_mib / 50,
        }
    }
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// MiB of driver and primary context.
    pub context_mib: u64,
    /// MiB that vendor libraries claim on first use.
    pub library_mib: u64,
    /// What somebody measured of it, on which machine and when; the rest is assumed.
    pub measured: Option<&'static str>,
    /// Whether the libraries' part was measured.
    pub library_measured: bool,
}

/// The operating system under the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux with the vendor's own driver.
    Linux,
    /// Windows, or Linux inside it: the display driver keeps more for itself, and pages instead of refusing.
    Windows,
}

/// Total: `memory.total` of `nvidia-smi`, as of November 2026, with ECC where it cannot be turned off. Usable: of the H200
/// measured (driver 580.159, 29 November 2026); of the others what PyTorch's out-of-memory messages give as capacity, in
/// hundredths of a GiB, rounded down.
pub const CARDS: &[Card] = &[
    Card { name: "A10", total_mib: 23_028, usable_mib: None },
    Card { name: "A100 40GB", total_mib: 40_960, usable_mib: None },
    Card { name: "A100 80GB", total_mib: 81_920, usable_mib: Some(81_050) },
    Card { name: "B200", total_mib: 183_359, usable_mib: None },
    Card { name: "H100 80GB", total_mib: 81_559, usable_mib: Some(81_008) },
    Card { name: "H200", total_mib: 143_771, usable_mib: Some(143_155) },
    Card { name: "L4", total_mib: 23_034, usable_mib: None },
    Card { name: "L40S", total_mib: 46_068, usable_mib: None },
    Card { name: "RTX 3060", total_mib: 12_288, usable_mib: None },
    Card { name: "RTX 3070", total_mib: 8192, usable_mib: None },
    Card { name: "RTX 3090", total_mib: 24_576, usable_mib: Some(24_258) },
    Card { name: "RTX 4060", total_mib: 8188, usable_mib: None },
    Card { name: "RTX 4060 Ti 16GB", total_mib: 16_380, usable_mib: None },
    Card { name: "RTX 4070", total_mib: 12_282, usable_mib: None },
    Card { name: "RTX 4070 Ti SUPER", total_mib: 16_376, usable_mib: None },
    Card { name: "RTX 4080", total_mib: 16_376, usable_mib: None },
    Card { name: "RTX 4090", total_mib: 24_564, usable_mib: Some(24_207) },
    Card { name: "RTX 5070", total_mib: 12_227, usable_mib: None },
    Card { name: "RTX 5070 Ti", total_mib: 16_303, usable_mib: None },
    Card { name: "RTX 5080", total_mib: 16_303, usable_mib: None },
    Card { name: "RTX 5090", total_mib: 32_607, usable_mib: Some(32_112) },
    Card { name: "RTX 6000 Ada", total_mib: 49_140, usable_mib: None },
    Card { name: "RTX A6000", total_mib: 49_140, usable_mib: None },
    Card { name: "RTX PRO 6000", total_mib: 97_887, usable_mib: None },
    Card { name: "T4", total_mib: 15_360, usable_mib: Some(14_930) },
    Card { name: "Tesla P40", total_mib: 24_576, usable_mib: None },
    Card { name: "V100 16GB", total_mib: 16_384, usable_mib: None },
    Card { name: "V100 32GB", total_mib: 32_768, usable_mib: None },
];

/// What is gone on a card before the first allocation, by platform.
pub fn taken(card: &str, platform: Platform) -> Taken {
    match (card, platform) {
        ("RTX 5090", Platform::Windows) => Taken {
            context_mib: 1680,
            library_mib: 3900,
            measured: Some("RTX 5090, WSL2: 1679.6 MiB and 3848 to 3886 MiB with cuBLAS and CUTLASS, July 2026"),
            library_measured: true,
        },
        ("H200", Platform::Linux) => H200,
        (_, Platform::Windows) => {
            Taken { context_mib: 1200, library_mib: 600, measured: None, library_measured: false }
        }
        (_, Platform::Linux) => Taken { context_mib: 500, library_mib: 300, measured: None, library_measured: false },
    }
}

/// The context is measured; what libraries take was not, and is the assumption for Linux.
const H200: Taken = Taken {
    context_mib: 527,
    library_mib: 300,
    measured: Some(
        "H200, Linux, driver 580.159: 526.8 MiB of context, 29 November 2026; the library reserve is assumed",
    ),
    library_measured: false,
};

/// One device of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What the operator calls it.
    pub name: String,
    /// What the plan may use of it, context and reserve included.
    pub budget: Bytes,
    /// What is gone.
    pub taken: Taken,
}

impl Device {
    /// A device that is only a budget.
    pub fn budget(budget: Bytes, platform: Platform) -> Device {
        Device { name: format!("{} MiB", budget.count() >> 20), budget, taken: taken("", platform) }
    }

    /// The planner's limits.
    pub fn limits(&self) -> Limits {
        Limits {
            context: Bytes::mib(self.taken.context_mib),
            library_reserve: Bytes::mib(self.taken.library_mib),
            library_source: match self.taken.library_measured {
                true => ReserveSource::Remembered,
                false => ReserveSource::Assumed,
            },
            ..Limits::new(SPACE, self.budget)
        }
    }
}

/// Reads `--device`: the name of a card, `2x NAME` for several, or `this` for those of this machine.
///
/// # Errors
/// One sentence that names the value and what to write instead.
///
/// ```
/// use memtier_cli::device::{Platform, parse};
/// assert_eq!(parse("2x rtx 4090", Platform::Linux)?.len(), 2);
/// assert!(parse("RTX 4900", Platform::Linux).unwrap_err().contains("RTX 4090"));
/// # Ok::<(), String>(())
/// ```
pub fn parse(text: &str, platform: Platform) -> Result<Vec<Device>, String> {
    if text == "this" {
        return this(platform);
    }
    let (count, name) = match text.split_once(['x', '×']) {
        Some((count, name)) if !count.is_empty() && count.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
            (count.trim().parse::<usize>().unwrap_or(usize::MAX), name.trim())
        }
        _ => (1, text.trim()),
    };
    if count == 0 || count > 64 {
        return Err(format!("--device {text}: {count} devices; write 1 to 64"));
    }
    let card = find(name).ok_or_else(|| {
        // As typed without spaces, and as a card is called.
        let near = did_you_mean(name, CARDS.iter().map(|card| card.name));
        let names: Vec<String> = CARDS.iter().map(|card| squeezed(card.name)).collect();
        let near = match nearest(&squeezed(name), names.iter().map(String::as_str)) {
            Some(found) if near.is_empty() => {
                let card = CARDS.iter().find(|card| squeezed(card.name) == found);
                card.map_or_else(String::new, |card| format!(" (did you mean \"{}\"?)", card.name))
            }
            _ => near,
        };
        format!("--device {text}: unknown card \"{name}\"{near}; `memtier devices` lists them, or give --vram-budget")
    })?;
    let budget = Bytes::mib(card.usable(platform));
    let device = Device { name: card.name.to_owned(), budget, taken: taken(card.name, platform) };
    Ok(vec![device; count])
}

/// A card by its name, whatever the case, spaces and vendor.
fn find(name: &str) -> Option<&'static Card> {
    let plain = squeezed;
    let wanted = plain(name);
    CARDS.iter().find(|card| plain(card.name) == wanted).or_else(|| {
        // The driver's names say more: "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB".
        let fits =
            |card: &&Card| !wanted.is_empty() && (wanted.starts_with(&plain(card.name)) || same_words(name, card.name));
        CARDS.iter().filter(fits).max_by_key(|card| card.name.len())
    })
}

/// A name in small letters, without spaces and what the vendor puts before it.
fn squeezed(name: &str) -> String {
    let name = name.to_lowercase().replace([' ', '-', '_'], "");
    ["nvidia", "geforce", "tesla"].iter().fold(name, |name, vendor| name.replace(vendor, ""))
}

fn same_words(long: &str, short: &str) -> bool {
    let long = long.to_lowercase();
    let words: Vec<&str> = long.split([' ', '-']).collect();
    short.to_lowercase().split(' ').all(|word| words.contains(&word))
}

/// The devices that the driver reports.
fn this(platform: Platform) -> Result<Vec<Device>, String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"])
        .output()
        .map_err(|error| {
            format!("--device this: no driver answers (nvidia-smi: {error}); name a card or give --vram-budget")
        })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let why = if why.is_empty() { String::from_utf8_lossy(&output.stdout).trim().to_owned() } else { why };
        // A query that failed is not a device of zero bytes.
        return Err(format!("--device this: the driver's query failed: {}; give --vram-budget", one_line(&why)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let devices: Vec<Device> = text.lines().filter_map(|line| reported(line, platform)).collect();
    if devices.is_empty() {
        return Err("--device this: the driver reports no device; name a card or give --vram-budget".to_owned());
    }
    Ok(devices)
}

/// One line of the driver's report: name, total and used MiB.
fn reported(line: &str, platform: Platform) -> Option<Device> {
    let mut fields = line.rsplitn(3, ',').map(str::trim);
    let (_, total, name) = (fields.next()?, fields.next()?.parse::<u64>().ok()?, fields.next()?);
    // The driver's total may be of a card that is not in the table.
    let card = find(name).copied().filter(|card| card.total_mib == total);
    let card = card.unwrap_or(Card { name: "", total_mib: total, usable_mib: None });
    Some(Device { name: name.to_owned(), budget: Bytes::mib(card.usable(platform)), taken: taken(card.name, platform) })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_however_they_are_written() {
        for (text, name) in [
            ("RTX 4090", "RTX 4090"),
            ("rtx4090", "RTX 4090"),
            ("NVIDIA GeForce RTX 5090", "RTX 5090"),
            ("NVIDIA H100 80GB HBM3", "H100 80GB"),
            ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
            ("H200", "H200"),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ] {
            assert_eq!(find(text).map(|card| card.name), Some(name), "{text}");
        }
        assert_eq!(find(""), None);
    }

    #[test]
    fn names_are_unique_and_sorted() {
        assert!(CARDS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn a_line_of_the_driver_is_a_device() {
        let device = reported("NVIDIA H200, 143771, 4", Platform::Linux).expect("a device");
        assert_eq!((device.name.as_str(), device.budget), ("NVIDIA H200", Bytes::mib(143_155)));
        assert_eq!(reported("Field not found", Platform::Linux), None);
    }

    #[test]
    fn a_process_never_sees_more_than_the_driver_has() {
        for card in CARDS {
            for platform in [Platform::Linux, Platform::Windows] {
                let usable = card.usable(platform);
                assert!(usable <= card.total_mib && usable > card.total_mib * 9 / 10, "{}", card.name);
            }
        }
    }

    #[test]
    fn counts_of_devices_are_bounded() {
        assert!(parse("0x H200", Platform::Linux).is_err());
        assert!(parse("99999999999999999999999x H200", Platform::Linux).is_err());
    }
}
