//! How much a backend may use: a decision over what the device answered.

use crate::units::Bytes;

/// What a device answered when it was asked how much memory is free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceMemory {
    /// So much is free. Zero is an answer.
    Reported(Bytes),
    /// The query failed, in the driver's own words. Not an answer, and in particular not zero.
    QueryFailed(Box<str>),
    /// There is no device to ask: the CPU, or a backend without state.
    NoDevice,
}

/// How much may be in use at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Weights, pooled memory and the request in hand stay within so much.
    Limited(Bytes),
    /// Nobody knows: weights are counted, nothing is refused here, and the device says when it is full.
    Unknown,
    /// Nothing limits it.
    Unbounded,
}

impl Budget {
    /// What is left of it when `used` is in use; `None` when nothing limits it.
    pub fn headroom(self, used: Bytes) -> Option<Bytes> {
        match self {
            Budget::Limited(budget) => Some(budget.beyond(used)),
            Budget::Unknown | Budget::Unbounded => None,
        }
    }
}

/// A [`Budget`] and what to tell the operator about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetDecision {
    /// The budget.
    pub budget: Budget,
    /// To be said once: the device's error, when its answer is missing and nobody set a budget.
    pub warning: Option<String>,
}

/// The part of a device's free memory that is held back when nobody set a budget: one quarter.
///
/// Drivers, libraries and other processes claim memory after the question was answered. A quarter is the share that the
/// engine this policy comes from holds back on CUDA and on Metal alike; an explicit budget replaces it.
const HELD_BACK: u64 = 4;

/// Decides a backend's budget. Pure.
///
/// * An `explicit` budget wins over every answer, zero included.
/// * A reported number keeps a quarter back. A measured zero is a budget of zero: everything is refused.
/// * A failed query is [`Budget::Unknown`] with the error in the warning. Read as zero it would refuse every load with a
///   message about memory when the driver is what is broken.
/// * Without a device nothing is limited.
///
/// ```
/// use memtier::Bytes;
/// use memtier::account::{Budget, DeviceMemory, decide_budget};
///
/// let free = DeviceMemory::Reported(Bytes::gib(8));
/// assert_eq!(decide_budget(None, &free).budget, Budget::Limited(Bytes::gib(6)));
/// assert_eq!(decide_budget(Some(Bytes::gib(7)), &free).budget, Budget::Limited(Bytes::gib(7)));
/// ```
pub fn decide_budget(explicit: Option<Bytes>, device: &DeviceMemory) -> BudgetDecision {
    let (budget, warning) = match (explicit, device) {
        (Some(budget), _) => (Budget::Limited(budget), None),
        (None, DeviceMemory::Reported(free)) => {
            (Budget::Limited(free.beyond(Bytes::new(free.count().div_ceil(HELD_BACK)))), None)
        }
        (None, DeviceMemory::QueryFailed(error)) => {
            let warning = format!(
                "the device did not say how much memory is free ({error}): weights are counted, and nothing is refused \
                 before the device refuses it; set a budget to change that"
            );
            (Budget::Unknown, Some(warning))
        }
        (None, DeviceMemory::NoDevice) => (Budget::Unbounded, None),
    };
    BudgetDecision { budget, warning }
}

/// A size that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no size: write a number and a unit, as in 512MiB or 1.5GiB (B, KiB, MiB, GiB, TiB; plain 0 is fine)")]
pub struct BadSize(pub String);

/// Reads a size that a person wrote: `512MiB`, `1.5 GiB`, `0`. A number without a unit is refused, because half of all
/// readers take it for bytes and the other half for MiB.
///
/// # Errors
/// [`BadSize`], with the text: anything else, and sizes past 64 bits.
pub fn parse_size(text: &str) -> Result<Bytes, BadSize> {
    let bad = || BadSize(text.to_owned());
    let text = text.trim();
    if text == "0" {
        return Ok(Bytes::ZERO);
    }
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let unit: u128 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), "0"));
    // Bounded, so that the product below stays far inside 128 bits.
    let digits = |part: &str| {
        let fine = (1..=20).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_digit());
        fine.then(|| part.parse::<u128>().ok()).flatten().ok_or_else(bad)
    };
    if fraction.len() > 6 {
        return Err(bad());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let total = digits(whole)? * unit + digits(fraction)? * unit / scale;
    u64::try_from(total).map(Bytes::new).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_decision() {
        let failed = || DeviceMemory::QueryFailed("CUDA_ERROR_NOT_INITIALIZED".into());
        let reported = |bytes| DeviceMemory::Reported(Bytes::new(bytes));
        let table = [
            (None, reported(8 << 30), Budget::Limited(Bytes::gib(6))),
            (None, reported(0), Budget::Limited(Bytes::ZERO)),
            (None, reported(7), Budget::Limited(Bytes::new(5))),
            (None, failed(), Budget::Unknown),
            (None, DeviceMemory::NoDevice, Budget::Unbounded),
            (Some(Bytes::gib(9)), reported(8 << 30), Budget::Limited(Bytes::gib(9))),
            (Some(Bytes::ZERO), reported(8 << 30), Budget::Limited(Bytes::ZERO)),
            (Some(Bytes::gib(1)), failed(), Budget::Limited(Bytes::gib(1))),
            (Some(Bytes::gib(1)), DeviceMemory::NoDevice, Budget::Limited(Bytes::gib(1))),
        ];
        for (explicit, device, budget) in table {
            let decided = decide_budget(explicit, &device);
            assert_eq!(decided.budget, budget, "{explicit:?} {device:?}");
            let names_the_error = decided.warning.is_some_and(|text| text.contains("CUDA_ERROR_NOT_INITIALIZED"));
            assert_eq!(names_the_error, budget == Budget::Unknown);
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1B", 1),
            ("512MiB", 512 << 20),
            (" 1.5 GiB ", 3 << 29),
            ("2.4GiB", 2_576_980_377),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(Bytes::new(bytes)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_text() {
        let wrong = [
            "",
            " ",
            "12",
            "-1MiB",
            "1.GiB",
            ".5GiB",
            "1..5GiB",
            "1,5GiB",
            "GiB",
            "1gib",
            "1GB",
            "1 G",
            "0x10MiB",
            "1e3MiB",
            "1MiB2",
            "+1MiB",
            "١MiB",
            "16777216TiB",
            "99999999999999999999999B",
            "1.0000001GiB",
            "inf",
            "NaN MiB",
        ];
        for text in wrong {
            let error = parse_size(text).unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
