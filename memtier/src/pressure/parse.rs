//! Reading the kernel's files. Bytes in, numbers or a clear error out; whatever is in them, nothing panics.

use std::str;

use super::reading::{HostReading, Percent, Psi};
use crate::units::Bytes;

/// A file that does not say what it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ParseError {
    /// A line or a field is not there.
    #[error("`{0}` is not there")]
    Missing(&'static str),
    /// A field is no number.
    #[error("`{field}` is `{found}`, which is no size or share")]
    NoNumber {
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: String,
    },
    /// A field leaves 64 bits of bytes.
    #[error("`{0}` is more than a machine can have")]
    TooLarge(&'static str),
    /// More is available than there is.
    #[error("more memory is available than there is")]
    MoreThanAll,
}

/// What is shown of a field that is no number.
fn shown(found: &[u8]) -> String {
    String::from_utf8_lossy(&found[..found.len().min(32)]).into_owned()
}

fn number(field: &'static str, found: &[u8]) -> Result<u64, ParseError> {
    let digits = str::from_utf8(found).ok().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    let digits = digits.ok_or_else(|| ParseError::NoNumber { field, found: shown(found) })?;
    digits.parse().map_err(|_| ParseError::TooLarge(field))
}

/// The words of the line that starts with `name`, without it.
fn line<'f>(file: &'f [u8], name: &'static str) -> Result<impl Iterator<Item = &'f [u8]>, ParseError> {
    let line = file.split(|byte| *byte == b'\n').find(|line| {
        let first = line.split(u8::is_ascii_whitespace).next();
        first == Some(name.as_bytes())
    });
    let words = |line: &'f [u8]| line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1);
    line.map(words).ok_or(ParseError::Missing(name))
}

/// `/proc/meminfo`: `MemTotal` and `MemAvailable`, in KiB whatever the unit says.
pub(super) fn meminfo(file: &[u8]) -> Result<HostReading, ParseError> {
    let kib = |name: &'static str| {
        let value = line(file, name)?.next().ok_or(ParseError::Missing(name))?;
        Bytes::kib(1).times(number(name, value)?).map_err(|_| ParseError::TooLarge(name))
    };
    let host = HostReading { total: kib("MemTotal:")?, available: kib("MemAvailable:")? };
    if host.available > host.total { Err(ParseError::MoreThanAll) } else { Ok(host) }
}

/// A `memory.pressure` file: the ten-second averages.
pub(super) fn psi(file: &[u8]) -> Result<Psi, ParseError> {
    let share = |name: &'static str, field: &'static str| {
        let value = line(file, name)?.find_map(|word| word.strip_prefix(b"avg10="));
        let value = value.ok_or(ParseError::Missing(field))?;
        let parsed = str::from_utf8(value).ok().and_then(|text| text.parse::<Percent>().ok());
        parsed.ok_or_else(|| ParseError::NoNumber { field, found: shown(value) })
    };
    Ok(Psi { some: share("some", "some avg10")?, full: share("full", "full avg10")? })
}

/// A cgroup's limit: a number of bytes, or `max` for none.
fn limit(field: &'static str, file: &[u8]) -> Result<Option<Bytes>, ParseError> {
    match file.trim_ascii() {
        b"max" => Ok(None),
        digits => number(field, digits).map(|bytes| Some(Bytes::new(bytes))),
    }
}

/// `memory.high`.
pub(super) fn high(file: &[u8]) -> Result<Option<Bytes>, ParseError> {
    limit("memory.high", file)
}

/// `memory.max`.
pub(super) fn max(file: &[u8]) -> Result<Option<Bytes>, ParseError> {
    limit("memory.max", file)
}

/// The old hierarchy's `memory.limit_in_bytes`, in which no limit is the largest multiple of any page size.
pub(super) fn old_max(file: &[u8]) -> Result<Option<Bytes>, ParseError> {
    const NONE: u64 = i64::MAX as u64 & !0xF_FFFF;
    let bytes = number("memory.limit_in_bytes", file.trim_ascii())?;
    Ok((bytes < NONE).then_some(Bytes::new(bytes)))
}

/// What a cgroup uses: `memory.current`, or the old hierarchy's `memory.usage_in_bytes`.
pub(super) fn current(file: &[u8]) -> Result<Bytes, ParseError> {
    number("memory in use", file.trim_ascii()).map(Bytes::new)
}

fn stat(field: &'static str, file: &[u8]) -> Result<Bytes, ParseError> {
    let value = line(file, field)?.next().ok_or(ParseError::Missing(field))?;
    number(field, value).map(Bytes::new)
}

/// A cgroup's `memory.stat`: file cache that was not used lately, in bytes.
pub(super) fn inactive_file(file: &[u8]) -> Result<Bytes, ParseError> {
    stat("inactive_file", file)
}

/// The same of the old hierarchy, whose plain line leaves out the groups below.
pub(super) fn total_inactive_file(file: &[u8]) -> Result<Bytes, ParseError> {
    stat("total_inactive_file", file)
}

fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// `/proc/self/cgroup`: the path of the unified hierarchy's group, without the leading slash.
pub(super) fn own_cgroup(file: &[u8]) -> Result<&[u8], ParseError> {
    let own = file.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    own.map(relative).ok_or(ParseError::Missing("0::"))
}

/// The same of the old hierarchy's memory controller: `4:memory:/path`, several controllers between commas.
pub(super) fn own_old_cgroup(file: &[u8]) -> Result<&[u8], ParseError> {
    let own = file.split(|byte| *byte == b'\n').find_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
        let controllers = parts.next()?;
        controllers.split(|byte| *byte == b',').any(|name| name == b"memory").then(|| parts.next())?
    });
    own.map(relative).ok_or(ParseError::Missing("memory:"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_own_files_are_read() {
        let file =
            b"MemTotal:       24684096 kB\nMemFree:        21574924 kB\nMemAvailable:   23970796 kB\nBuffers: 1 kB\n";
        let host = HostReading { total: Bytes::kib(24_684_096), available: Bytes::kib(23_970_796) };
        assert_eq!(meminfo(file), Ok(host));
        let file = b"some avg10=1.53 avg60=0.87 avg300=0.22 total=1\nfull avg10=0.07 avg60=0.00 avg300=0.00 total=1\n";
        let stalls = Psi { some: Percent::hundredths(153), full: Percent::hundredths(7) };
        assert_eq!(psi(file), Ok(stalls));
        assert_eq!((max(b"max\n"), high(b"max\n")), (Ok(None), Ok(None)));
        assert_eq!(max(b"1073741824\n"), Ok(Some(Bytes::gib(1))));
        assert_eq!(old_max(b"9223372036854771712\n"), Ok(None));
        assert_eq!(old_max(b"1073741824\n"), Ok(Some(Bytes::gib(1))));
        assert_eq!(current(b"0\n"), Ok(Bytes::ZERO));
        assert_eq!(total_inactive_file(b"inactive_file 5\ntotal_inactive_file 9\n"), Ok(Bytes::new(9)));
        assert_eq!(own_old_cgroup(b"5:cpu:/y\n4:hugetlb,memory:/x:y\n0::/z\n"), Ok(&b"x:y"[..]));
        assert!(own_old_cgroup(b"4:memorystick:/x\n4:memory\n0::/z\n").is_err());
        assert_eq!(inactive_file(b"anon 5\nfile 9\nactive_file 2\ninactive_file 7\n"), Ok(Bytes::new(7)));
        assert_eq!(own_cgroup(b"4:memory:/x\n0::/user.slice/a.service\n"), Ok(&b"user.slice/a.service"[..]));
    }

    #[test]
    fn impossible_files_are_clear_errors() {
        let said = |file: &[u8]| meminfo(file).unwrap_err().to_string();
        assert_eq!(said(b""), "`MemTotal:` is not there");
        assert_eq!(said(b"MemTotal: 1 kB\n"), "`MemAvailable:` is not there");
        assert_eq!(said(b"MemTotal:\nMemAvailable: 1 kB"), "`MemTotal:` is not there");
        assert_eq!(said(b"MemTotal: -5 kB\n"), "`MemTotal:` is `-5`, which is no size or share");
        assert_eq!(said(b"MemTotal: \xff\xfe kB\n"), "`MemTotal:` is `\u{fffd}\u{fffd}`, which is no size or share");
        assert_eq!(said(b"MemTotal: 99999999999999999999 kB\n"), "`MemTotal:` is more than a machine can have");
        assert_eq!(said(b"MemTotal: 18446744073709551615 kB\n"), "`MemTotal:` is more than a machine can have");
        assert_eq!(said(b"MemTotal: 1 kB\nMemAvailable: 2 kB\n"), "more memory is available than there is");
        assert_eq!(said(b"XMemTotal: 1 kB\n"), "`MemTotal:` is not there");
        for file in [
            &b""[..],
            b"some",
            b"some avg10=\nfull avg10=1",
            b"some avg10=1.00",
            b"some avg10=-1.00\nfull avg10=0.00",
            b"some avg10=101.00\nfull avg10=0.00",
            b"some avg10=nan\nfull avg10=0.00",
            b"some avg10=\xff\nfull avg10=0.00",
        ] {
            assert!(psi(file).is_err(), "{}", String::from_utf8_lossy(file));
        }
        for file in [&b""[..], b"MAX", b"-1", b"1 2", b"0x10", b"18446744073709551616", b"\0"] {
            let shown = String::from_utf8_lossy(file);
            assert!(max(file).is_err() && high(file).is_err() && old_max(file).is_err(), "{shown}");
        }
        assert_eq!(own_cgroup(b"4:memory:/x\n"), Err(ParseError::Missing("0::")));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics(
            mut file in prop::collection::vec(any::<u8>(), 0..200),
            words in prop::collection::vec(prop::sample::select(vec![
                "MemTotal:", "MemAvailable:", "some", "full", "avg10=", "inactive_file", "0::", " ", "\n", "9", "-", ".", "max",
            ]), 0..40),
        ) {
            file.extend(words.concat().bytes());
            let _ = (meminfo(&file), psi(&file), max(&file), old_max(&file), current(&file));
            let _ = (inactive_file(&file), total_inactive_file(&file), own_cgroup(&file), own_old_cgroup(&file));
        }
    }
}
