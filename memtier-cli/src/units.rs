//! Sizes and counts as operators type them.

use memtier::Bytes;

/// Reads a size: `32607MiB`, `24GiB`, `1.5GiB`, `512KiB`, `4096B`.
///
/// # Errors
/// One sentence that names the value and what to write instead. Decimal units are refused: a card sold as 24 GB has
/// 24 GiB, and a plan for the smaller number wastes what a plan for the larger one lacks.
///
/// ```
/// use memtier::Bytes;
/// use memtier_cli::units::size;
/// assert_eq!(size("32607MiB"), Ok(Bytes::mib(32607)));
/// assert_eq!(size("1.5GiB"), Ok(Bytes::mib(1536)));
/// assert!(size("32GB").unwrap_err().contains("32GiB"));
/// ```
pub fn size(text: &str) -> Result<Bytes, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == '_'));
    let (number, unit) = trimmed.split_at(split.unwrap_or(trimmed.len()));
    if trimmed.starts_with('-') {
        return Err(format!("\"{text}\" is negative; write a size above 0, as 32607MiB"));
    }
    if number.is_empty() {
        return Err(format!("\"{text}\" is no size; write a number and a unit, as 32607MiB or 24GiB"));
    }
    let scale: u64 = match unit.trim() {
        "B" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        "TiB" | "Ti" => 1 << 40,
        "" => return Err(format!("\"{text}\" has no unit; write {number}MiB or {number}GiB")),
        other => return Err(wrong_unit(text, number, other)),
    };
    scaled(number, scale).ok_or_else(|| format!("\"{text}\" is no size within 64 bits; write one as 32607MiB or 24GiB"))
}

/// As [`size`], where a number without unit is MiB.
///
/// # Errors
/// As [`size`].
pub fn size_in_mib(text: &str) -> Result<Bytes, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        size(&format!("{text}MiB"))
    } else {
        size(text)
    }
}

fn wrong_unit(text: &str, number: &str, unit: &str) -> String {
    let decimal = match unit.to_ascii_lowercase().as_str() {
        "kb" => Some((1_000, "KiB")),
        "mb" => Some((1_000_000, "MiB")),
        "gb" => Some((1_000_000_000, "GiB")),
        "tb" => Some((1_000_000_000_000, "TiB")),
        _ => None,
    };
    let binary = match unit.chars().next().map(|letter| letter.to_ascii_lowercase()) {
        Some('k') => "KiB",
        Some('m') => "MiB",
        Some('t') => "TiB",
        _ => "GiB",
    };
    match decimal.and_then(|(scale, binary)| Some((scaled(number, scale)?, binary))) {
        Some((bytes, binary)) => format!(
            "\"{text}\" is {} MiB by the label and more by most tools; write {number}{binary}, or {}MiB if you mean the \
             decimal unit",
            bytes.count() >> 20,
            bytes.count() >> 20
        ),
        None => format!(
            "\"{text}\" has the unknown unit \"{unit}\" (did you mean \"{number}{binary}\"?); units are B, KiB, MiB, GiB, TiB"
        ),
    }
}

/// A decimal number times a scale, in whole bytes, without floating point.
fn scaled(number: &str, scale: u64) -> Option<Bytes> {
    let clean: String = number.chars().filter(|&letter| letter != '_').collect();
    let (whole, fraction) = clean.split_once('.').unwrap_or((&clean, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > 9 || (clean.contains('.') && fraction.is_empty())
    {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let tenths = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let part = u128::from(part) * u128::from(scale) / u128::from(tenths);
    whole.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?).map(Bytes::new)
}

/// Reads a count of at least `least`.
///
/// # Errors
/// One sentence that names the value and what is accepted.
pub fn count(text: &str, what: &str, least: u64) -> Result<u64, String> {
    let clean: String = text.chars().filter(|letter| !matches!(letter, '_' | ',')).collect();
    match clean.parse::<u64>() {
        Ok(value) if value >= least => Ok(value),
        Ok(value) => Err(format!("\"{value}\" is too few {what}; write {least} or more")),
        Err(_) if clean.starts_with('-') => Err(format!("\"{text}\" is negative; write {least} or more {what}")),
        Err(_) if !clean.is_empty() && clean.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("\"{text}\" is more {what} than 64 bits hold; write a smaller number"))
        }
        Err(_) => match thousands(&clean) {
            Some(value) => Err(format!("\"{text}\" is no whole number of {what} (did you mean {value}?)")),
            None => Err(format!("\"{text}\" is no whole number of {what}; write digits, as {}", least.max(8))),
        },
    }
}

/// `32k` as 32768.
fn thousands(text: &str) -> Option<u64> {
    let number: u64 = text.strip_suffix(['k', 'K'])?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("0B", 0), ("1KiB", 1024), ("1_024MiB", 1 << 30), ("2TiB", 2 << 40), ("0.5GiB", 1 << 29)]
        {
            assert_eq!(size(text), Ok(Bytes::new(bytes)), "{text}");
        }
        assert_eq!(size_in_mib("3900"), Ok(Bytes::mib(3900)));
    }

    #[test]
    fn wrong_sizes_are_told_what_to_write() {
        for (text, remedy) in [
            ("32", "32MiB"),
            ("32GB", "32GiB"),
            ("32gib", "32GiB"),
            ("32Gb", "32GiB"),
            ("-1GiB", "negative"),
            ("", "no size"),
            ("GiB", "no size"),
            ("1.2.3GiB", "no size"),
            ("99999999999999999999GiB", "64 bits"),
            ("17179869184GiB", "64 bits"),
            ("8 bananas", "unknown unit"),
        ] {
            let error = size(text).expect_err(text);
            assert!(error.contains(remedy) && error.contains(&format!("\"{text}\"")), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn counts_are_whole_numbers() {
        assert_eq!(count("131_072", "tokens", 1), Ok(131_072));
        for (text, remedy) in
            [("0", "1 or more"), ("-8", "negative"), ("32k", "32768"), ("eight", "digits"), ("1e3", "digits")]
        {
            let error = count(text, "tokens", 1).expect_err(text);
            assert!(error.contains(remedy), "{error}");
        }
        assert!(count("99999999999999999999999", "tokens", 1).expect_err("huge").contains("64 bits"));
    }
}
